"""The global model of a table: how well it classifies, and whether being recorded and attacked changes it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from datamodules.base import FederatedDataModule
from datamodules.deltas import Recording
from evaluation.scores import concat
from experiments.base import PaperCell
from experiments.recorded_cell import cell_trainer
from modules.federated import FederatedModule

RECORDED = "global-model"
UNRECORDED = "global-model-unrecorded"
"""Under which the numbers of the global model stand: of the training that was attacked, and of one left alone."""

Models = Mapping[int, Mapping[str, Tensor]]


@dataclass(frozen=True)
class GlobalModels:
    """The global models of one training.

    Attributes:
        name: `RECORDED` or `UNRECORDED`.
        before: by round, the public parameters that it began with.
        round_seconds: wall time of a round.
    """

    name: str
    before: Models
    round_seconds: float


def of_recording(recording: Recording, rounds: list[int] | None, *, round_seconds: float) -> GlobalModels:
    """Of the training that was attacked."""
    before = {view.round: view.model for view in recording.views(victims_per_view=1, rounds=rounds)}
    return GlobalModels(RECORDED, before, round_seconds)


def left_alone(
    module: FederatedModule, source: FederatedDataModule, rounds: int, directory: Path, attacked: list[int] | None
) -> GlobalModels:
    """Of the same training without a recorder (Decaf, figure 5)."""
    keeper = _Keeper()
    start = time.perf_counter()
    cell_trainer(rounds, directory, keeper).fit(module, datamodule=source)
    seconds = (time.perf_counter() - start) / rounds
    wanted = range(rounds) if attacked is None else attacked
    return GlobalModels(UNRECORDED, {number: keeper.before[number] for number in wanted}, seconds)


def model_scores(
    models: GlobalModels, module: FederatedModule, source: FederatedDataModule, cell: PaperCell[Any], *, timed: bool
) -> pd.DataFrame:
    """Accuracy on the test images before each round, and where it is asked for the wall time of a round.

    Args:
        models: of one training.
        module: where to put them.
        source: whose test images.
        cell: that they are of.
        timed: whether to give ``round_seconds``.
    """
    rows = []
    for number, parameters in models.before.items():
        module.load_state_dict(dict(parameters), strict=False)
        with torch.no_grad():
            hits = [(module(b["image"]).argmax(1) == b["label"]).float() for b in source.val_dataloader()]
        correct = torch.cat(hits)
        metrics = {"accuracy": [float(correct.mean())], **({"round_seconds": [models.round_seconds]} if timed else {})}
        counted: dict[str, Any] = {"items": len(correct), "positives": int(correct.sum())}
        rows.append(
            cell.scores(models.name, metrics, victims=[0], round=number, setting={"round": number + 1}, **counted)
        )
    return concat(rows)


class _Keeper(Callback):
    """Keeps the public parameters that each round begins with."""

    def __init__(self) -> None:
        self.before: dict[int, dict[str, Tensor]] = {}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Copies them."""
        public = {name: value.detach().clone() for name, value in pl_module.named_parameters()}
        self.before[trainer.global_step] = public
