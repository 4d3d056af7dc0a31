"""A recording of a thousand rounds: its size relative to the raw tensors, and the speed of reading it."""

import math
import tempfile
import time
from pathlib import Path

from lightning import Trainer
from safetensors.torch import load_file

from bench.measure import Measure
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.modules.learners.fncf import FNCF
from fedleak.recordings.recording import Recording

CLIENTS = 10
ROUNDS = 1000
PASSES = 3
"""Repetitions, of which the fastest counts, because the machine may be busy."""


def reading_back(rounds: int = ROUNDS) -> list[Measure]:
    """Bytes, and bytes per second from the page cache with every view read as by an attack; 10 clients per round."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _record(rounds, folder)
        files = [path for path in (folder / "deltas").rglob("*") if path.is_file()]
        on_disk = sum(path.stat().st_blocks * 512 for path in files)
        # Loading the raw tensors also brings every shard into the page cache.
        raw = sum(sum(t.nbytes for t in load_file(path).values()) for path in files if path.suffix == ".safetensors")
        job = f"recording of {rounds} rounds"
        sizes = [Measure(job, "raw tensors", raw / 1e6, "MB"), Measure(job, "on disk", on_disk / 1e6, "MB")]
        return [*sizes, *(_read(folder, job, verify=verify) for verify in (False, True))]


def _read(folder: Path, job: str, *, verify: bool) -> Measure:
    size = sum(path.stat().st_size for path in (folder / "deltas/rounds").iterdir())
    victims, seconds = 0, math.inf
    for _ in range(PASSES):
        start = time.perf_counter()
        victims = sum(view.victims for view in Recording(folder / "deltas", verify=verify).views())
        seconds = min(seconds, time.perf_counter() - start)
    what = f"{victims} views read, hashes {'checked' if verify else 'not checked'}"
    return Measure(job, what, size / 1e6 / seconds, "MB/s")


def _record(rounds: int, folder: Path) -> None:
    source = SyntheticRecommender(clients_per_round=CLIENTS)
    local = LocalTraining(optimizer="adam", learning_rate=0.001, epochs=1)
    Trainer(
        max_steps=rounds,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        default_root_dir=folder,
        callbacks=[DeltaRecorder()],
    ).fit(FNCF(num_items=source.num_items, num_clients=source.num_clients, local=local), datamodule=source)
