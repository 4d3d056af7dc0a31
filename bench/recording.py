"""A round with and without the recorder."""

import tempfile

from lightning import Trainer

from bench.measure import Measure, interleaved
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.modules.learners.fncf import FNCF

ROUNDS = 6


def recording_times(repeats: int) -> list[Measure]:
    """A round of 200 clients with and without the recorder."""

    def train(record: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = SyntheticRecommender(clients_per_round=200)
            Trainer(
                max_steps=ROUNDS,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                limit_val_batches=0,
                default_root_dir=folder,
                callbacks=[DeltaRecorder()] if record else [],
            ).fit(FNCF(num_items=source.num_items, num_clients=source.num_clients), datamodule=source)

    times = interleaved({"recording on": lambda: train(True), "recording off": lambda: train(False)}, repeats)
    return [Measure("a round", name, value / ROUNDS) for name, value in times.items()]
