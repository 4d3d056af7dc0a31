"""Rounds of the same training by one process with two threads and by two processes (gloo) with one thread each."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from bench.measure import Measure
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.modules.learners.fncf import FNCF
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.training.data import FederatedDataModule
from fedleak.training.federated import FederatedModule

ROUNDS = 3
"""Rounds of a turn; the first is a warm-up."""
_SAME = 5e-4
"""Largest difference of the two models as a share of their movement; one process with another chunk size already
differs by half of this."""

Job = Callable[[], tuple[FederatedModule, FederatedDataModule]]


def fncf() -> tuple[FederatedModule, FederatedDataModule]:
    """All 943 users of generated data in MovieLens' shape, 20 epochs of Adam.

    Its eps is large, so that rounding stays small: with 1e-8 one process alone ends elsewhere, by 1e-3 of the movement
    and more, when its clients are grouped in other chunks.
    """
    source = SyntheticRecommender(holdout=False)
    local = LocalTraining(optimizer="adam", learning_rate=1e-3, epochs=20, eps=1e-3)
    return FNCF(num_items=source.num_items, num_clients=source.num_clients, local=local), source


def images() -> tuple[FederatedModule, FederatedDataModule]:
    """100 clients of 50 colour images, batch 10, one epoch of SGD on a small CNN."""
    source = SyntheticImages(shape=(3, 32, 32), split=ClientSplit(clients=100), auxiliary_per_class=0)
    module = FederatedClassifier(
        num_classes=10,
        image_shape=(3, 32, 32),
        network=ClassifierOptions(channels=32, hidden=128),
        local=LocalTraining(learning_rate=0.01, batch_size=10),
    )
    return module, source


JOBS: dict[str, Job] = {"FNCF, 943 clients": fncf, "CNN, 100 clients": images}


def process_times(repeats: int) -> list[Measure]:
    """Seconds per round, the median over turns; both must have trained the same model."""
    measures = []
    for job in JOBS:
        seconds: dict[int, list[float]] = {1: [], 2: []}
        for _ in tqdm(range(repeats), desc=f"{job}: 1 / 2 processes", unit="turn"):
            models = {}
            for ranks, times in seconds.items():
                own, models[ranks] = _turn(job, ranks)
                times += own
            check_same(models[1], models[2])
        names = {1: "1 process, 2 threads", 2: "2 processes, 1 thread each"}
        measures += [Measure(f"processes: {job}", names[r], statistics.median(t)) for r, t in seconds.items()]
    return measures


def check_same(one: dict[str, Tensor], two: dict[str, Tensor]) -> None:
    """Checks that both trained the same model.

    Args:
        one: by parameter, its movement.
        two: the same of the other training.
    """
    gap = torch.stack([(two[name] - value).norm() for name, value in one.items()]).norm()
    share = float(gap / torch.stack([value.norm() for value in one.values()]).norm().clamp(min=1e-12))
    if share > _SAME:
        raise SystemExit(f"one and two processes end with other models: {share:.1e} of their movement apart")
    print(f"the models of one and two processes differ by {share:.1e} of their movement")


def _turn(job: str, ranks: int) -> tuple[list[float], dict[str, Tensor]]:
    """Seconds of each round but the first, and how far each parameter moved."""
    with tempfile.TemporaryDirectory() as folder:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(2 // ranks)}
        command = [*launch, "-m", "bench.processes", job, folder]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times = json.loads((Path(folder) / "seconds.json").read_text(encoding="utf-8"))
        return times[1:], load_file(Path(folder) / "moved.safetensors")


class _Clock(Callback):
    """Seconds of each round."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.start = 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.seconds.append(time.perf_counter() - self.start)


def _train(job: str, folder: Path) -> None:
    """The part of a turn that one process runs."""
    module, source = JOBS[job]()
    before = {name: value.clone() for name, value in module.public_parameters().items()}
    clock = _Clock()
    ranks = int(os.environ["WORLD_SIZE"])
    trainer = Trainer(
        max_steps=ROUNDS,
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        use_distributed_sampler=False,
        callbacks=[clock],
    )
    trainer.fit(module, datamodule=source)
    if trainer.is_global_zero:
        after = module.public_parameters()
        moved = {name: (after[name] - value).contiguous() for name, value in before.items()}
        save_file(moved, folder / "moved.safetensors")
        (folder / "seconds.json").write_text(json.dumps(clock.seconds), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    _train(sys.argv[1], Path(sys.argv[2]))
