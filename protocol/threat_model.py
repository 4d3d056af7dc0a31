"""Threat models: what an adversary sees and knows."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """The adversary of an attack, as text for reports.

    Whether the server is active is a property of the server, not of the attack; see `ServerView.manipulation`, which an
    attack that needs manipulated rounds lists in `needs`.

    Attributes:
        sees: what the server observes.
        knows: its additional knowledge, e.g. the learning algorithm, a prior or auxiliary data.
        needs: required fields of `protocol.view.ServerView`, or entries of fields that are mappings:
            ``"deltas:item_embedding.weight"``, ``"auxiliary:images"``, ``"priors:popularity"``;
            ``"learner:RankingSimulator"`` requires a learner of a kind in `protocol.simulators`.
    """

    sees: str
    knows: str
    needs: tuple[str, ...] = ("deltas",)
