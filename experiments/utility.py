"""What local DP and manipulation cost: NDCG@10 of a federated ranker (RAIFLE, table X and section VIII.A)."""

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attacks.base import Attack
from attacks.manipulation.some_clients import SomeClients
from datamodules.base import FederatedDataModule
from defenses.local_dp import LocalDP
from experiments.base import Choice, PaperCell, PaperExperiment, as_number, cell_trainer, check_names, plain_number
from experiments.ranking import MANIPULATIONS, RANKERS, RANKING_DATA, ranking_data
from modules.federated import FederatedModule
from modules.fpdgd import FPDGD
from reports.evaluation import Evaluation
from reports.results import VictimRow


@dataclass(frozen=True)
class UtilityExperiment(PaperExperiment):
    """A table of rankers that nobody attacks.

    Attributes:
        experiment: its name.
        metrics: ``ndcg@10``.
        data: data sets by folder name.
        rankers: ``linear`` or ``neural-UNITS``.
        click_models: how clients click.
        epsilons: privacy budgets of local DP.
        manipulations: what the server sends to the manipulated users: ``none``, ``noise`` or ``codebook``.
        manipulated_users: how many users of each round get it.
        repetitions: trainings of each cell.
        rounds_per_training: rounds of each.
        clients_per_round: clients of a round, of one query each.
        clip: L2 norm to which an update is clipped under local DP.
        delta: delta of local DP.
        also: further parts of the table, each with what differs in it.
    """

    small_cells = True
    experiment: str
    metrics: list[str]
    data: list[str]
    rankers: list[str]
    click_models: list[str]
    epsilons: list[float]
    manipulations: list[str] = field(default_factory=lambda: ["none"])
    manipulated_users: list[int] = field(default_factory=lambda: [0])
    repetitions: int = 10
    rounds_per_training: int = 25
    clients_per_round: int = 100
    clip: float = 0.25
    delta: float = 1e-8
    attacks: dict[str, dict[str, Any]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    also: list["UtilityExperiment"] = field(default_factory=list)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> "UtilityExperiment":
        """From a configuration."""
        own = {key: value for key, value in content.items() if key != "also"}
        parts = [cls.parse({**own, **part}) for part in content.get("also", [])]
        epsilons = [as_number("epsilon", value) for value in own["epsilons"]]
        made = cls(**{**own, "epsilons": epsilons, "also": parts})
        check_names("manipulation", made.manipulations, list(MANIPULATIONS))
        check_names("data set", made.data, RANKING_DATA)
        check_names("ranker", made.rankers, list(RANKERS))
        return made

    @property
    def known_attacks(self) -> Mapping[str, type[Attack]]:
        """None: this table measures what a defence costs."""
        return {}

    def cells(self, choice: Choice) -> Iterator[PaperCell]:
        """See `PaperExperiment.cells`."""
        columns = list(
            itertools.product(
                self.rankers, self.click_models, self.epsilons, self.manipulations, self.manipulated_users
            )
        )
        seeds = range(max(self.repetitions, choice.seeds))
        for data, column, seed in itertools.product(self.names(choice), columns, seeds):
            yield _Cell(self, data, choice, seed, self, *column)
        for part in self.also:
            yield from part.cells(choice)

    def source(self, data: str, root: str | None) -> FederatedDataModule:
        """See `PaperExperiment.source`."""
        return ranking_data(data, root)


@dataclass(frozen=True)
class _Cell(PaperCell):
    table: UtilityExperiment
    ranker: str
    click_model: str
    epsilon: float
    manipulation: str
    manipulated_users: int

    @property
    def key(self) -> str:
        cell = f"{self.data}-{self.ranker}-{self.click_model}-eps{self.epsilon:g}"
        cell += f"-{self.manipulated_users}-{self.manipulation}" if self.manipulated_users else ""
        return f"{cell}-seed{self.seed}"

    @property
    def setting(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "ranker": self.ranker,
            "click_model": self.click_model,
            "epsilon": plain_number(self.epsilon),
            "manipulation": self.manipulation if self.manipulated_users else "none",
            "manipulated_users": self.manipulated_users,
        }

    def build(self) -> tuple[FederatedModule, FederatedDataModule]:
        table = self.table
        source = ranking_data(
            self.data,
            self.choice.root,
            queries_per_client=1,
            clients_per_round=table.clients_per_round,
            seed=self.seed,
        )
        private = math.isfinite(self.epsilon)
        kind = MANIPULATIONS[self.manipulation]
        module = FPDGD(
            num_features=source.num_features,
            num_grades=source.num_grades,
            num_clients=source.num_clients,
            grade_law=source.grade_law,
            hidden=RANKERS[self.ranker],
            click_model=self.click_model,  # type: ignore[arg-type]
            manipulation=None if kind is None else SomeClients(kind(), clients=self.manipulated_users),
            defenses=[LocalDP(clip=table.clip, epsilon=self.epsilon, delta=table.delta)] if private else [],
            seed=self.seed,
        )
        return module, source

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Trains, and ranks the test queries."""
        module, source = self.build()
        start = time.perf_counter()
        cell_trainer(self.table.rounds_per_training, directory).fit(module, datamodule=source)
        middle = time.perf_counter()
        for batch in source.val_dataloader():
            module.update_metrics(batch)
        value = float(module.ndcg.compute())  # type: ignore[operator,union-attr]
        rounds = self.table.rounds_per_training
        row = VictimRow("none", self.setting, self.seed, rounds, self.seed, 0, 0, "ndcg@10", value, 0.0)
        return Evaluation([row]), {"train": middle - start, "attack": time.perf_counter() - middle}
