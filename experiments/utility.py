"""What defences and manipulation cost: NDCG@10 of a federated ranker (RAIFLE, table X and section VIII)."""

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from attacks.base import Attack
from attacks.manipulation.some_clients import SomeClients
from datamodules.base import FederatedDataModule
from defenses.local_dp import LocalDP
from experiments.base import RANKING_ATTACKS, Choice, PaperCell
from experiments.guardrail import guardrail
from experiments.options import as_number, check_names, plain_number
from experiments.ranking import MANIPULATIONS
from experiments.ranking_table import RANKERS, RankingTable, ranking_data
from experiments.recorded_cell import cell_trainer
from modules.federated import RoundRecord
from modules.fpdgd import FPDGD
from reports.evaluation import Evaluation
from reports.results import VictimRow


@dataclass(frozen=True)
class UtilityExperiment(RankingTable):
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
        guardrails: largest AUC at which a client sends, ``inf`` for no guardrail. Where one is finite, ``held-back``,
            the share of the updates that are not sent, and the ranker before training are reported as well.
        attacks: what clients run on themselves under a guardrail, by name, with constructor arguments.
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
    guardrails: list[float] = field(default_factory=lambda: [math.inf])
    attacks: dict[str, dict[str, Any]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    also: list["UtilityExperiment"] = field(default_factory=list)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> "UtilityExperiment":
        """From a configuration."""
        own = {key: value for key, value in content.items() if key != "also"}
        numbers = {
            "epsilons": [as_number("epsilon", value) for value in own["epsilons"]],
            "guardrails": [as_number("guardrail", value) for value in own.get("guardrails", ["inf"])],
        }
        parts = [cls.parse({**own, **part}) for part in content.get("also", [])]
        made = cls(**{**own, **numbers, "also": parts})
        check_names("manipulation", made.manipulations, list(MANIPULATIONS))
        made.check_columns(RANKING_ATTACKS)
        return made

    @property
    def guarded(self) -> bool:
        """Whether there is a guardrail in this table."""
        return min(self.guardrails) < math.inf

    @property
    def known_attacks(self) -> Mapping[str, type[Attack]]:
        """What clients may run on themselves: nobody else attacks here."""
        return RANKING_ATTACKS

    def cells(self, choice: Choice) -> Iterator[PaperCell]:
        """See `PaperExperiment.cells`."""
        columns = list(
            itertools.product(
                self.rankers,
                self.click_models,
                self.epsilons,
                self.manipulations,
                self.manipulated_users,
                self.guardrails,
            )
        )
        seeds = range(max(self.repetitions, choice.seeds))
        for data, column, seed in itertools.product(self.names(choice), columns, seeds):
            yield _Cell(self, data, choice, seed, self, *column)
        for part in self.also:
            yield from part.cells(choice)


@dataclass(frozen=True)
class _Cell(PaperCell):
    table: UtilityExperiment
    ranker: str
    click_model: str
    epsilon: float
    manipulation: str
    manipulated_users: int
    limit: float

    @property
    def key(self) -> str:
        cell = f"{self.data}-{self.ranker}-{self.click_model}-eps{self.epsilon:g}"
        cell += f"-{self.manipulated_users}-{self.manipulation}" if self.manipulated_users else ""
        cell += "" if math.isinf(self.limit) else f"-guardrail{self.limit:g}"
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
            **({"guardrail": plain_number(self.limit)} if self.table.guarded else {}),
        }

    def build(self) -> tuple[FPDGD, FederatedDataModule]:
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
        noise = [LocalDP(clip=table.clip, epsilon=self.epsilon, delta=table.delta)] if private else []
        module = FPDGD(
            num_features=source.num_features,
            num_grades=source.num_grades,
            num_clients=source.num_clients,
            grade_law=source.grade_law,
            hidden=RANKERS[self.ranker],
            click_model=self.click_model,  # type: ignore[arg-type]
            manipulation=None if kind is None else SomeClients(kind(), clients=self.manipulated_users),
            defenses=[*noise, *guardrail(self.limit, table.make_attacks())],
            seed=self.seed,
        )
        return module, source

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Trains, and ranks the test queries."""
        module, source = self.build()
        start = time.perf_counter()
        before = self._ndcg(module, source)
        held = _HeldBack()
        cell_trainer(self.table.rounds_per_training, directory, held).fit(module, datamodule=source)
        middle = time.perf_counter()
        rows = [self._row("none", "ndcg@10", self._ndcg(module, source))]
        if self.table.guarded:
            rows += [self._row("untrained", "ndcg@10", before), self._row("guardrail", "held-back", held.share)]
        return Evaluation(rows), {"train": middle - start, "attack": time.perf_counter() - middle}

    def _ndcg(self, module: FPDGD, source: FederatedDataModule) -> float:
        module.ndcg.reset()
        module.on_validation_epoch_start()
        for batch in source.val_dataloader():
            module.update_metrics(batch)
        return float(module.ndcg.compute())

    def _row(self, name: str, metric: str, value: float) -> VictimRow:
        rounds = self.table.rounds_per_training
        return VictimRow(name, self.setting, self.seed, rounds, self.seed, 0, 0, metric, value, 0.0)


class _HeldBack(Callback):
    """Counts the updates that are not sent."""

    reads_updates = True

    def __init__(self) -> None:
        self.held = self.updates = 0

    @property
    def share(self) -> float:
        """Their share of all updates."""
        return self.held / max(self.updates, 1)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Counts the round that has just ended."""
        record: RoundRecord = pl_module.round_record  # type: ignore[assignment]
        self.updates += len(record.cohort)
        self.held += 0 if record.update.sent is None else int((~record.update.sent).sum())
