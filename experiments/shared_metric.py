"""What is left to attack where clients share a number or two (FOLtR-ES; RAIFLE, section VII.E), as an experiment."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from attacks.base import Attack
from attacks.interactions.list_metrics import UTILITY
from datamodules.base import FederatedDataModule
from experiments.base import RANKING_ATTACKS, Choice, PaperCell
from experiments.options import as_number, check_names, plain_number
from experiments.ranking_table import RANKERS, RankingTable, ranking_data
from experiments.recorded_cell import RecordedCell
from modules.federated import FederatedModule
from modules.foltr_es import FOLtRES


@dataclass(frozen=True)
class SharedMetricExperiment(RankingTable):
    """A table: every ranker with every click model, number of queries, budget and prior.

    Attributes:
        experiment: its name.
        metrics: the metrics it reports.
        data: data sets by folder name.
        rankers: ``linear`` or ``neural-UNITS``.
        click_models: how clients click.
        queries: queries of a client, and so lists behind each of the numbers that it sends.
        epsilons: budgets of local DP for the metric of one list.
        priors: by what is believed of the clicks beforehand, the attacks; those that take a prior are given it.
        attacks: constructor arguments of the attacks, by name, but the prior.
        limits: by slow attack, how many victims of each recording it attacks, drawn at random.
        users: least number of users in a cell; the queries are dealt out as often as that takes.
        metric: what clients share.
    """

    experiment: str
    metrics: list[str]
    data: list[str]
    rankers: list[str]
    click_models: list[str]
    queries: list[int]
    epsilons: list[float]
    priors: dict[str, list[str]]
    attacks: dict[str, dict[str, Any]]
    limits: dict[str, int] = field(default_factory=dict)
    users: int = 100
    metric: str = "max-rr"

    @classmethod
    def parse(cls, content: dict[str, Any]) -> "SharedMetricExperiment":
        """From a configuration."""
        made = cls(**{**content, "epsilons": [as_number("epsilon", value) for value in content["epsilons"]]})
        made.check_columns(RANKING_ATTACKS)
        for names in made.priors.values():
            check_names("attack", names, list(made.attacks))
        return made

    @property
    def known_attacks(self) -> Mapping[str, type[Attack]]:
        """See `PaperExperiment.known_attacks`."""
        return RANKING_ATTACKS

    def cells(self, choice: Choice) -> Iterator[PaperCell]:
        """See `PaperExperiment.cells`."""
        columns = itertools.product(self.rankers, self.click_models, self.queries, self.epsilons, self.priors)
        for data, column, seed in itertools.product(self.names(choice), list(columns), range(choice.seeds)):
            yield _Cell(self.with_prior(column[-1]), data, choice, seed, self, *column)

    def with_prior(self, prior: str) -> "SharedMetricExperiment":
        """The same table, whose attacks believe something of the clicks beforehand."""
        attacks = {name: dict(arguments) for name, arguments in self.attacks.items() if name in self.priors[prior]}
        for name in attacks.keys() & {"metric-posterior", "prior-only"}:
            attacks[name]["prior"] = prior
        return dataclasses.replace(self, attacks=attacks)


@dataclass(frozen=True)
class _Cell(RecordedCell):
    table: SharedMetricExperiment
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
