"""Central training of the recommender learns, private vectors included."""

from pathlib import Path

import pytest
import torch
from lightning import Trainer

from fedleak.modules.references.central import CentralFNCF
from tests.toys import data, quiet_trainer

pytestmark = pytest.mark.integration


def loss_after(steps: int, folder: Path) -> tuple[float, CentralFNCF, Trainer]:
    source = data(clients_per_round=1.0)
    module = CentralFNCF(
        num_items=source.num_items, num_clients=source.num_clients, user_dim=8, item_dim=8, hidden=(8,)
    )
    trainer = quiet_trainer(steps, folder, val_check_interval=1, limit_val_batches=1.0)
    trainer.fit(module, datamodule=source)
    return float(trainer.callback_metrics["train/loss"]), module, trainer


def test_central_training_learns_and_is_measured(tmp_path: Path) -> None:
    first, untrained, _ = loss_after(1, tmp_path)
    last, trained, trainer = loss_after(10, tmp_path)
    assert last < first - 0.001
    assert 0 <= float(trainer.callback_metrics["val/hr@10"]) <= 1
    assert not torch.equal(untrained.users, trained.users)
