"""What every table on rankings has in common: its data sets and its rankers."""

from collections.abc import Collection, Sequence
from typing import Any

from datamodules.letor import LETOR
from datamodules.mslr import MSLR
from datamodules.ranking import RankingDataModule
from datamodules.synthetic_ranking import SyntheticRanking
from experiments.base import PaperExperiment
from experiments.options import check_names

RANKING_DATA = ("MQ2007", "MQ2008", "MSLR-WEB10K", "MSLR-WEB30K", "synthetic-mslr", "synthetic-letor")
RANKERS = {"linear": 0, "neural-4": 4, "neural-8": 8, "neural-16": 16}
"""Hidden units by a ranker's name."""


def ranking_data(name: str, root: str | None, **options: Any) -> RankingDataModule:
    """A ranking set by its folder name."""
    if name.startswith("MQ"):
        return LETOR(root=root, name=name, **options)  # type: ignore[arg-type]
    if name.startswith("MSLR"):
        return MSLR(root=root, name=name, **options)  # type: ignore[arg-type]
    return SyntheticRanking(shape="mslr" if name == "synthetic-mslr" else "letor", queries=600, **options)


class RankingTable(PaperExperiment):
    """A table on rankings.

    Attributes:
        rankers: ``linear`` or ``neural-UNITS``.
    """

    rankers: list[str]

    def check_columns(self, attacks: Collection[str]) -> None:
        """Refuses names that are not known.

        Args:
            attacks: the attacks that the table may name.

        Raises:
            InputError: an attack, a data set or a ranker is unknown.
        """
        check_names("attack", list(self.attacks), list(attacks))
        check_names("data set", self.data, RANKING_DATA)
        check_names("ranker", self.rankers, list(RANKERS))

    @property
    def known_data(self) -> Sequence[str]:
        """Names of the data sets that the table may run on."""
        return RANKING_DATA

    def source(self, data: str, root: str | None) -> RankingDataModule:
        """See `PaperExperiment.source`."""
        return ranking_data(data, root)
