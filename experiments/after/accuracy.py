"""How well the global model classifies before each attacked round, and whether being recorded changes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.after.step import AfterStep

if TYPE_CHECKING:
    from experiments.cell_run import CellRun

RECORDED, UNRECORDED = "global-model", "global-model-unrecorded"
"""Labels of the training that was attacked, and of one left alone."""


@dataclass(frozen=True, kw_only=True)
class Accuracy(AfterStep):
    """Accuracy on the test images of the global model that each attacked round began with (Decaf, figures 5 and 6).

    Attributes:
        unrecorded: also of the same training without a recorder, and the mean ``round_seconds`` of both.
    """

    name: ClassVar[str] = "accuracy"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "round_seconds")
    unrecorded: bool = False

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        rounds = run.cell.rounds.which or run.recording.rounds
        total = len(run.recording.rounds)
        models = {number: run.recording.model(number) for number in rounds}
        seconds = run.train_seconds / total if self.unrecorded else None
        found = [evaluation.scores, _scores(run, RECORDED, models, seconds)]
        if self.unrecorded:
            keeper = _Keeper()
            _, spent = run.train({}, callbacks=[keeper])
            models = {number: keeper.before[number] for number in rounds}
            found.append(_scores(run, UNRECORDED, models, spent / total))
        evaluation.scores = concat(found)
        return evaluation


def _scores(
    run: "CellRun", label: str, models: Mapping[int, Mapping[str, Tensor]], seconds: float | None
) -> pd.DataFrame:
    module, data = run.build()
    module.eval()
    rows = []
    for number, parameters in models.items():
        module.load_state_dict(dict(parameters), strict=False)
        with torch.no_grad():
            hits = [(module(b["image"]).argmax(1) == b["label"]).float() for b in data.val_dataloader()]
        correct = torch.cat(hits)
        metrics = {"accuracy": [float(correct.mean())], **({} if seconds is None else {"round_seconds": [seconds]})}
        counted: dict[str, Any] = {"items": len(correct), "positives": int(correct.sum())}
        setting = {"round": number + 1} if run.cell.rounds.separate else {}
        rows.append(run.scores(label, metrics, victims=[0], round=number, setting=setting, **counted))
    return concat(rows)


class _Keeper(Callback):
    """Keeps the public parameters that each round begins with."""

    def __init__(self) -> None:
        self.before: dict[int, dict[str, Tensor]] = {}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Copies them."""
        public = {name: value.detach().clone() for name, value in pl_module.named_parameters()}
        self.before[trainer.global_step] = public
