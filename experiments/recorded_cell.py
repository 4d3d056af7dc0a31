"""A cell whose clients train and are recorded, and whose recording is attacked."""

import abc
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

import pandas as pd
from lightning import Trainer
from lightning.pytorch.callbacks import Callback

from callbacks.delta_recorder import DeltaRecorder
from datamodules.base import FederatedDataModule
from datamodules.deltas import Recording
from evaluation.evaluate import evaluate, people_of
from evaluation.runner import Evaluation
from experiments.base import PaperCell, Table
from modules.federated import FederatedModule
from modules.registry import learner_from


@dataclass(frozen=True)
class RecordedCell(PaperCell[Table], Generic[Table]):
    """One training, and the attacks on its recording."""

    @abc.abstractmethod
    def build(self) -> tuple[FederatedModule, FederatedDataModule]:
        """The clients' learner and their data."""

    @property
    def rounds(self) -> int:
        """Rounds to train and record."""
        return 1

    @property
    def recorded(self) -> list[str] | None:
        """Patterns of the parameters to record, None for all."""
        return None

    @property
    def victims_per_view(self) -> int:
        """Most victims attacked at once."""
        return 64

    @property
    def attacked(self) -> list[int] | None:
        """Numbers of the rounds to attack, None for all."""
        return None

    @property
    def history(self) -> bool:
        """Whether an attack on a round is given the earlier ones too."""
        return False

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        start = time.perf_counter()
        recording = Recording(self._record(directory))
        middle = time.perf_counter()
        attacks = self.make_attacks()
        evaluation = evaluate(
            recording,
            list(attacks.values()),
            seed=self.seed,
            setting=self.setting,
            learner=learner_from(recording.manifest.learner),
            victims=self.choice.victims,
            limits={name: limit for name, limit in self.table.limits.items() if name in attacks},
            victims_per_view=self.victims_per_view,
            rounds=self.attacked,
            history=self.history,
            progress=self.choice.progress,
        )
        return evaluation, {"train": middle - start, "attack": time.perf_counter() - middle}

    def _record(self, directory: Path) -> Path:
        module, source = self.build()
        recorded = directory / "deltas"
        (recorded / "manifest.json").unlink(missing_ok=True)
        (recorded / "journal.jsonl").unlink(missing_ok=True)
        recorder = DeltaRecorder(directory=str(recorded), parameters=self.recorded)
        cell_trainer(self.rounds, directory, recorder).fit(module, datamodule=source)
        return recorded


def of_people(scores: pd.DataFrame, recording: Recording) -> pd.DataFrame:
    """Scores of pseudonyms, with the numbers that their people have under every seed; opens the truth.

    Args:
        scores: whose ``victim`` is a pseudonym of the recording.
        recording: that they are of.
    """
    people = people_of(recording)
    return scores.assign(person=[people.get(victim, victim) for victim in scores["victim"].tolist()])


def cell_trainer(rounds: int, directory: Path, *callbacks: Callback) -> Trainer:
    """Trains one cell on one device, saying nothing: the table has a bar of its own."""
    return Trainer(
        max_steps=rounds,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        use_distributed_sampler=False,
        default_root_dir=directory,
        callbacks=list(callbacks),
    )
