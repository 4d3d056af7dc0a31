"""Rounds with more and more clients: time must be linear in their number, memory bounded except for their data."""

import subprocess
import sys
import time
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from bench.measure import Measure
from bench.peak_memory import peak_mib
from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.core.seeding import generator_for
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.training.data import FederatedDataModule

SIZES = (1250, 2500, 5000, 10000)
_IMAGES, _ROUNDS = 8, 3


def scaling(sizes: tuple[int, ...] = SIZES) -> list[Measure]:
    """Seconds and peak resident memory of rounds of a small classifier, each size in a process of its own."""
    measures = []
    for size in sizes:
        command = [sys.executable, "-m", "bench.scaling", str(size)]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        seconds, data, peak = (float(number) for number in answer[-3:])
        measures += [
            Measure("clients in a round, time", f"{size:,}", seconds),
            Measure("clients in a round, peak memory", f"{size:,}", peak, "MiB"),
            Measure("clients in a round, their data alone", f"{size:,}", data, "MiB"),
        ]
    return sorted(measures, key=lambda m: (m.unit, m.job))


class _Clients(FederatedDataModule):
    """Clients with a few generated images each, all of them in every round."""

    def __init__(self, number: int) -> None:
        super().__init__()
        generator = generator_for(0, "bench-scaling")
        self.images = torch.randn(number, _IMAGES, 1, 28, 28, generator=generator)
        self.labels = torch.randint(10, (number, _IMAGES), generator=generator)

    @property
    def num_clients(self) -> int:
        return len(self.images)

    @property
    def fingerprint(self) -> dict[str, str]:
        return {"name": "generated", "sha256": ""}

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """All clients, so nothing is copied."""
        mask = torch.ones(len(clients), _IMAGES, dtype=torch.bool)
        return Cohort(round_number, clients, {"image": self.images, "label": self.labels}, mask)


class _Clock(Callback):
    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Notes when a round ends."""
        self.ends.append(time.perf_counter())


def _measure(size: int) -> tuple[float, float, float]:
    """Seconds of a round after the first, MiB of the data, MiB at the peak."""
    data, clock = _Clients(size), _Clock()
    # 94,538 parameters: at 10,000 clients their deltas are 3.5 GiB.
    module = FederatedClassifier(
        num_classes=10,
        image_shape=(1, 28, 28),
        network=ClassifierOptions(name="two-convolutions", channels=32, hidden=128),
        local=LocalTraining(learning_rate=0.01, batch_size=_IMAGES),
    )
    Trainer(
        max_steps=_ROUNDS,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        callbacks=[clock],
    ).fit(module, datamodule=data)
    seconds = (clock.ends[-1] - clock.ends[0]) / (_ROUNDS - 1)
    return seconds, data.images.nbytes / 2**20, peak_mib()


if __name__ == "__main__":
    print(*_measure(int(sys.argv[1])))
