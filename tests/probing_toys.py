"""A small recommender whose server probes its clients after a few honest rounds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning import Trainer
from lightning.pytorch.callbacks import Callback

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.defenses.row_noise import RowNoise
from fedleak.modules.learners.matrix_factorization import FederatedMF
from fedleak.server.probing import Probing
from fedleak.server.repeated_selection import RepeatedSelection
from fedleak.training.server_optimizer import ServerOptimizer
from tests.toys import quiet_trainer

AFTER = 4


def clients(**changes: Any) -> SyntheticRecommender:
    options: dict[str, Any] = {
        "users": 40,
        "items": 120,
        "mean_interactions": 12.0,
        "fewest_interactions": 4,
        "negatives_per_positive": 7 / 3,
        "fewest_labels": 5,
        "clients_per_round": 20,
        "repeated_selection": RepeatedSelection(after=AFTER, clients=15),
    }
    return SyntheticRecommender(**{**options, **changes})


def learner(data: SyntheticRecommender, *, noise: float = 0.0, **changes: Any) -> FederatedMF:
    options: dict[str, Any] = {
        "dim": 5,
        "local": LocalTraining(learning_rate=0.1, batch_size=5, updates=3),
        "server": ServerOptimizer(learning_rate=20.0),
        "defenses": [RowNoise(scale=noise)],
        "leaning": "known",
        "probing": Probing(after=AFTER, interactions=[1, 20], of_bound=[1], theorem=1),
    }
    return FederatedMF(num_items=data.num_items, num_clients=data.num_clients, **{**options, **changes})


def train(
    folder: Path,
    module: FederatedMF,
    data: SyntheticRecommender,
    *,
    callbacks: Sequence[Callback] | None = None,
    ckpt_path: Path | None = None,
    rounds: int = -1,
) -> Trainer:
    """Trains and records in process, until the server ends it."""
    kept = [DeltaRecorder(every_n_rounds=3)] if callbacks is None else callbacks
    trainer = quiet_trainer(rounds, folder, *kept)
    trainer.fit(module, datamodule=data, ckpt_path=None if ckpt_path is None else str(ckpt_path))
    return trainer
