"""What is left to attack where clients share a number or two (FOLtR-ES; RAIFLE, section VII.E), as an experiment."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from attacks.base import Attack
from datamodules.base import FederatedDataModule
from experiments.base import Choice, PaperCell
from experiments.options import check_names, plain_number
from experiments.ranking_table import RANKERS, RankingTable, ranking_data
from experiments.recorded_cell import RecordedCell
from modules.federated import FederatedModule
from modules.foltr_es import FOLtRES
from protocol.list_metrics import UTILITY


@dataclass(frozen=True, kw_only=True)
class SharedMetricExperiment(RankingTable):
    """A table: every ranker with every click model, number of queries, budget and prior.

    Attributes:
        queries: queries of a client, and so lists behind each of the numbers that it sends.
        priors: by what is believed of the clicks beforehand, the attacks; those that take a prior are given it.
        users: least number of users in a cell; the queries are dealt out as often as that takes.
        metric: what clients share.
    """

    queries: list[int]
    priors: dict[str, list[str]]
    users: int = 100
    metric: str = "max-rr"

    def __post_init__(self) -> None:
        super().__post_init__()
        for names in self.priors.values():
            check_names("attack", names, list(self.attacks))

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        return self.grid(choice, _Cell, self.rankers, self.click_models, self.queries, self.epsilons, self.priors)


@dataclass(frozen=True)
class _Cell(RecordedCell[SharedMetricExperiment]):
    ranker: str
    click_model: str
    queries: int
    epsilon: float
    prior: str

    @property
    def key(self) -> str:
        cell = f"{self.data}-{self.ranker}-{self.click_model}-q{self.queries}-eps{self.epsilon:g}-{self.prior}"
        return f"{cell}-seed{self.seed}-victims{self.choice.victims or 'all'}"

    @property
    def setting(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "learner": "foltr-es",
            "ranker": self.ranker,
            "click_model": self.click_model,
            "queries": self.queries,
            "epsilon": plain_number(self.epsilon),
            "prior": self.prior,
        }

    def make_attacks(self) -> dict[str, Attack]:
        names = self.table.priors[self.prior]
        believing = [name for name in names if self.table.takes(name, "prior")]
        return self.table.make_attacks(names, {name: {"prior": self.prior} for name in believing})

    @property
    def victims_per_view(self) -> int:
        return 256

    @property
    def recorded(self) -> list[str] | None:
        return [UTILITY]

    @property
    def rounds(self) -> int:
        """One for every time that the queries are dealt out."""
        users = ranking_data(self.data, self.choice.root, queries_per_client=self.queries).num_clients
        return math.ceil(self.table.users / users)

    def build(self) -> tuple[FederatedModule, FederatedDataModule]:
        source = ranking_data(
            self.data, self.choice.root, queries_per_client=self.queries, shuffles=self.rounds, seed=self.seed
        )
        module = FOLtRES(
            num_features=source.num_features,
            num_grades=source.num_grades,
            num_clients=source.num_clients,
            grade_law=source.grade_law,
            hidden=RANKERS[self.ranker],
            click_model=self.click_model,  # type: ignore[arg-type]
            metric=self.table.metric,  # type: ignore[arg-type]
            epsilon=self.epsilon,
            seed=self.seed,
        )
        return module, source
