"""What local DP costs: NDCG@10 of a federated ranker against epsilon (RAIFLE, table X)."""

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attacks.base import Attack
from datamodules.base import FederatedDataModule
from defenses.local_dp import LocalDP
from experiments.base import Choice, PaperCell, PaperExperiment, as_number, cell_trainer, check_names, plain_number
from experiments.ranking import RANKERS, RANKING_DATA, ranking_data
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
        repetitions: trainings of each cell.
        rounds_per_training: rounds of each.
        clients_per_round: clients of a round, of one query each.
        clip: L2 norm to which an update is clipped under local DP.
        delta: delta of local DP.
    """

    experiment: str
    metrics: list[str]
    data: list[str]
    rankers: list[str]
    click_models: list[str]
    epsilons: list[float]
    repetitions: int = 10
    rounds_per_training: int = 25
    clients_per_round: int = 100
    clip: float = 0.25
    delta: float = 1e-8
    attacks: dict[str, dict[str, Any]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> "UtilityExperiment":
        """From a configuration."""
        made = cls(**{**content, "epsilons": [as_number("epsilon", value) for value in content["epsilons"]]})
        check_names("data set", made.data, RANKING_DATA)
        check_names("ranker", made.rankers, list(RANKERS))
        return made

    @property
    def known_attacks(self) -> Mapping[str, type[Attack]]:
        """None: this table measures what a defence costs."""
        return {}

    def cells(self, choice: Choice) -> Iterator[PaperCell]:
        """See `PaperExperiment.cells`."""
        columns = itertools.product(self.names(choice), self.rankers, self.click_models, self.epsilons)
        for data, ranker, click_model, epsilon in columns:
            for seed in range(max(self.repetitions, choice.seeds)):
                yield _Cell(self, data, choice, seed, self, ranker, click_model, epsilon)

    def source(self, data: str, root: str | None) -> FederatedDataModule:
        """See `PaperExperiment.source`."""
        return ranking_data(data, root)


@dataclass(frozen=True)
class _Cell(PaperCell):
    table: UtilityExperiment
    ranker: str
    click_model: str
    epsilon: float

    @property
    def key(self) -> str:
        return f"{self.data}-{self.ranker}-{self.click_model}-eps{self.epsilon:g}-seed{self.seed}"

    @property
    def setting(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "ranker": self.ranker,
            "click_model": self.click_model,
            "epsilon": plain_number(self.epsilon),
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
        module = FPDGD(
            num_features=source.num_features,
            num_grades=source.num_grades,
            num_clients=source.num_clients,
            grade_law=source.grade_law,
            hidden=RANKERS[self.ranker],
            click_model=self.click_model,  # type: ignore[arg-type]
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
