"""What every table on rankings has in common: its data sets and its rankers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from datamodules.letor import LETOR
from datamodules.mslr import MSLR
from datamodules.ranking import RankingDataModule
from datamodules.synthetic_ranking import SyntheticRanking
from defenses.local_dp import LocalDP
from experiments.base import PaperExperiment
from experiments.options import as_number, check_names
from modules.fpdgd import FPDGD
from protocol.errors import InputError

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


@dataclass(frozen=True, kw_only=True)
class RankingTable(PaperExperiment):
    """A table on rankings.

    Attributes:
        rankers: ``linear`` or ``neural-UNITS``.
        click_models: how clients click.
        epsilons: privacy budgets of local DP.
    """

    families: ClassVar[tuple[str, ...]] = ("ranking", "interactions")
    rankers: list[str]
    click_models: list[str]
    epsilons: list[float]

    def __post_init__(self) -> None:
        """Refuses data sets and rankers that there are not, and budgets that are none."""
        object.__setattr__(self, "epsilons", [as_number("epsilon", value) for value in self.epsilons])
        check_names("data set", self.data, RANKING_DATA)
        check_names("ranker", self.rankers, list(RANKERS))
        if min(self.epsilons) <= 0:
            raise InputError(expected="epsilons > 0", found=str(min(self.epsilons)), way_out="inf means no noise.")

    @property
    def known_data(self) -> Sequence[str]:
        return RANKING_DATA

    def source(self, data: str, root: str | None) -> RankingDataModule:
        return ranking_data(data, root)


@dataclass(frozen=True, kw_only=True)
class OnlineTable(RankingTable):
    """A table whose clients train FPDGD.

    Attributes:
        clip: L2 norm to which an update is clipped under local DP.
        delta: delta of local DP.
    """

    clip: float = 0.25
    delta: float = 1e-8

    def noise(self, epsilon: float) -> list[LocalDP]:
        """Local DP, none for an infinite budget."""
        return [] if math.isinf(epsilon) else [LocalDP(clip=self.clip, epsilon=epsilon, delta=self.delta)]

    @staticmethod
    def learner(source: RankingDataModule, ranker: str, click_model: str, **options: Any) -> FPDGD:
        """The clients' learner; the options are those of FPDGD."""
        return FPDGD(
            num_features=source.num_features,
            num_grades=source.num_grades,
            num_clients=source.num_clients,
            grade_law=source.grade_law,
            hidden=RANKERS[ranker],
            click_model=click_model,  # type: ignore[arg-type]
            **options,
        )
