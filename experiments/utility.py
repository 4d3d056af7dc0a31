"""What defences and manipulation cost: NDCG@10 of a federated ranker (RAIFLE, table X and section VIII)."""

import dataclasses
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from attacks.manipulation.targeted import SomeClients
from datamodules.base import FederatedDataModule
from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.base import Choice, PaperCell
from experiments.guardrail import guardrail
from experiments.options import as_number, check_names, plain_number
from experiments.ranking import MANIPULATIONS
from experiments.ranking_table import OnlineTable, ranking_data
from experiments.recorded_cell import cell_trainer
from modules.federated import RoundRecord
from modules.fpdgd import FPDGD


@dataclass(frozen=True, kw_only=True)
class UtilityExperiment(OnlineTable):
    """A table of rankers that nobody attacks.

    Attributes:
        manipulations: what the server sends to the manipulated users: ``none``, ``noise`` or ``codebook``.
        manipulated_users: how many users of each round get it.
        repetitions: trainings of each cell.
        rounds_per_training: rounds of each.
        clients_per_round: clients of a round, of one query each.
        also: further parts of the table, each with what differs in it.
        attacks: what clients run on themselves under a guardrail, by name, with constructor arguments.
        guardrails: largest AUC at which a client sends, ``inf`` for no guardrail. Where one is finite, ``held-back``,
            the share of the updates that are not sent, and the ranker before training are reported as well.
    """

    small_cells = True
    manipulations: list[str] = field(default_factory=lambda: ["none"])
    manipulated_users: list[int] = field(default_factory=lambda: [0])
    repetitions: int = 10
    rounds_per_training: int = 25
    clients_per_round: int = 100
    attacks: dict[str, dict[str, Any]] = field(default_factory=dict)
    guardrails: list[float] = field(default_factory=lambda: [math.inf])
    also: list["UtilityExperiment"] = field(default_factory=list)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        own = {key: value for key, value in content.items() if key != "also"}
        return cls(**own, also=[cls.parse({**own, **part}) for part in content.get("also", [])])

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "guardrails", [as_number("guardrail", value) for value in self.guardrails])
        check_names("manipulation", self.manipulations, list(MANIPULATIONS))

    @property
    def guarded(self) -> bool:
        """Whether there is a guardrail in this table."""
        return min(self.guardrails) < math.inf

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        repeated = dataclasses.replace(choice, seeds=max(self.repetitions, choice.seeds))
        users = self.manipulations, self.manipulated_users, self.guardrails
        yield from self.grid(repeated, _Cell, self.rankers, self.click_models, self.epsilons, *users)
        for part in self.also:
            yield from part.cells(choice)


@dataclass(frozen=True)
class _Cell(PaperCell[UtilityExperiment]):
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
        kind = MANIPULATIONS[self.manipulation]
        module = table.learner(
            source,
            self.ranker,
            self.click_model,
            manipulation=None if kind is None else SomeClients(kind(), clients=self.manipulated_users),
            defenses=[*table.noise(self.epsilon), *guardrail(self.limit, table.make_attacks().values())],
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
        ends = {"none": {"ndcg@10": self._ndcg(module, source)}}
        if self.table.guarded:
            ends |= {"untrained": {"ndcg@10": before}, "guardrail": {"held-back": held.share}}
        rounds = self.table.rounds_per_training
        rows = [
            self.scores(name, {metric: [value]}, victims=[self.seed], round=rounds)
            for name, metrics in ends.items()
            for metric, value in metrics.items()
        ]
        return Evaluation(concat(rows)), {"train": middle - start, "attack": time.perf_counter() - middle}

    def _ndcg(self, module: FPDGD, source: FederatedDataModule) -> float:
        module.ndcg.reset()
        module.on_validation_epoch_start()
        for batch in source.val_dataloader():
            module.update_metrics(batch)
        return float(module.ndcg.compute())


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
