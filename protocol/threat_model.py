"""Threat models: what an adversary sees and knows."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """The adversary of an attack, in words that every report prints.

    Whether the server is active is no property of the attack that reads a view but of the server's behaviour, which the
    view states (`ServerView.manipulation`); an attack that only works on manipulated rounds needs that field.

    Attributes:
        sees: what the server observes.
        knows: what it knows in addition (the learning algorithm, a prior, auxiliary data).
        needs: fields of `protocol.view.ServerView` that must be present for the attack to run, or one entry of a field
            that is a mapping: ``"deltas:item_embedding.weight"``, ``"auxiliary:images"``, ``"priors:popularity"``;
            ``"learner:RankingSimulator"`` needs a learner of a kind of `protocol.simulators`.
    """

    sees: str
    knows: str
    needs: tuple[str, ...] = ("deltas",)
