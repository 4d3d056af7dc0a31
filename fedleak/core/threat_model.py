"""Threat models: what an adversary sees and knows."""

from dataclasses import dataclass

from fedleak.core.taxonomy import passive_letter

Need = str | type
"""A field of a server view, an entry of one, or a kind of the clients' algorithm."""


def described_need(need: Need) -> str:
    """A need as text."""
    return f"learner:{need.__name__}" if isinstance(need, type) else need


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """The adversary of an attack, as text for reports.

    Whether the server is active is a property of the server, not of the attack; see `RoundView.manipulation`, which an
    attack that needs manipulated rounds lists in `needs`.

    Attributes:
        sees: what the server observes.
        knows: its additional knowledge, e.g. the learning algorithm, a prior or auxiliary data.
        needs: required fields of `fedleak.core.view.RoundView`, or entries of fields that are mappings:
            ``"deltas:item_embedding.weight"``, ``"auxiliary:images"``, ``"priors:popularity"``;
            a class, such as `fedleak.client.RankingAlgorithm`, requires clients that run an algorithm of this kind.

    Example:
        >>> from fedleak import ThreatModel
        >>> model = ThreatModel(sees="each update", knows="popular items", needs=("deltas", "priors:popularity"))
        >>> sorted(model.fields)
        ['deltas', 'priors']
    """

    sees: str
    knows: str
    needs: tuple[Need, ...] = ("deltas",)

    @property
    def described_needs(self) -> tuple[str, ...]:
        """`needs` as texts, a class as ``learner:NAME``, the word of manifests."""
        return tuple(described_need(need) for need in self.needs)

    @property
    def fields(self) -> frozenset[str]:
        """Fields of the view in `needs`."""
        return frozenset("algorithm" if isinstance(need, type) else need.partition(":")[0] for need in self.needs)

    @property
    def letter(self) -> str:
        """Letter of the weakest passive adversary who has `fields`, see `fedleak.core.taxonomy.Taxonomy`."""
        return passive_letter(self.fields)
