"""Quality of the trained model itself, next to what leaks from its training."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from fedleak.core.metric_table import SHARE, Metric
from fedleak.evaluation.evaluation import Evaluation
from fedleak.tables.after.step import AfterStep
from fedleak.tables.cell_cache import CellRun
from fedleak.training.data import FederatedDataModule
from fedleak.training.federated import FederatedModule

RECORDED, UNRECORDED = "global-model", "global-model-unrecorded"
"""Labels of the attacked training's model, and of the same training without a recorder."""


@dataclass(frozen=True, kw_only=True)
class Accuracy(AfterStep):
    """Test accuracy of the global model at the start of each attacked round (Decaf, figures 5 and 6).

    Attributes:
        unrecorded: whether to repeat the training without a recorder, and to report ``round_seconds`` of both.
    """

    name = "accuracy"
    metrics = ("accuracy", "round_seconds")
    unrecorded: bool = False

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        rounds, total = run.cell.rounds.which or run.recording.rounds, len(run.recording.rounds)
        models = {number: run.recording.model(number) for number in rounds}
        yield from _accuracies(run, RECORDED, models, run.train_seconds / total if self.unrecorded else None)
        if self.unrecorded:
            keeper = _Keeper()
            _, spent = run.train({}, callbacks=[keeper])
            models = {number: keeper.before[number] for number in rounds}
            yield from _accuracies(run, UNRECORDED, models, spent / total)


def _accuracies(
    run: CellRun, label: str, models: Mapping[int, Mapping[str, Tensor]], seconds: float | None
) -> Iterator[pd.DataFrame]:
    module, data = run.build()
    module.eval()
    for number, parameters in models.items():
        module.load_state_dict(dict(parameters), strict=False)
        correct = _hits(module, data.val_dataloader())
        metrics = {"accuracy": [float(correct.mean())], **({} if seconds is None else {"round_seconds": [seconds]})}
        counted: dict[str, Any] = {"items": len(correct), "positives": int(correct.sum())}
        setting = {"round": number + 1} if run.cell.rounds.separate else {}
        yield run.scores(label, metrics, victims=[0], round=number, setting=setting, **counted)


@dataclass(frozen=True, kw_only=True)
class Fitted(AfterStep):
    """Accuracy of the global model after the last round, on the clients' own images and on test images.

    Attacks on membership by losses need a model that fits the former better. One value per training; the label is
    ``global-model``.
    """

    name = "fitted"
    metrics = (
        Metric(
            "train-accuracy",
            "Train accuracy is the share of the clients' images that the model classifies rightly.",
            leak=False,
            span=SHARE,
        ),
        Metric(
            "test-accuracy",
            "Test accuracy is the share of the test images that the model classifies rightly.",
            leak=False,
            span=SHARE,
        ),
    )

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        module, data = run.trained()
        cohorts = (data.build_cohort(0, torch.tensor([client])).examples for client in range(data.num_clients))
        own = ({name: value[0] for name, value in examples.items()} for examples in cohorts)
        module.eval()
        found = {"train-accuracy": _hits(module, own), "test-accuracy": _hits(module, data.val_dataloader())}
        metrics = {name: [float(hits.mean())] for name, hits in found.items()}
        yield run.scores(RECORDED, metrics, victims=[run.seed], round=len(run.recording.rounds))


@torch.no_grad()
def _hits(module: FederatedModule, batches: Iterable[Mapping[str, Tensor]]) -> Tensor:
    """``(N,)`` whether the model's class of each image is right."""
    return torch.cat([(module(batch["image"]).argmax(1) == batch["label"]).float() for batch in batches])


class _Keeper(Callback):
    """Keeps the public parameters at the start of each round."""

    def __init__(self) -> None:
        self.before: dict[int, dict[str, Tensor]] = {}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Copies the parameters."""
        public = {name: value.detach().clone() for name, value in pl_module.named_parameters()}
        self.before[trainer.global_step] = public


@dataclass(frozen=True, kw_only=True)
class Utility(AfterStep):
    """The learner's metrics on the test examples after the last round, such as NDCG@10; one value per training.

    The label is ``none``.

    Attributes:
        before: whether to measure the model before the first round too, with the label ``untrained``.
    """

    name = "utility"
    metrics = ("ndcg@10", "top5")
    before: bool = False

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        measured = {"none": _measured(*run.trained())}
        if self.before:
            measured["untrained"] = _measured(*run.build())
        for label, values in measured.items():
            metrics = {name: [value] for name, value in values.items()}
            yield run.scores(label, metrics, victims=[run.seed], round=len(run.recording.rounds))


@torch.no_grad()
def _measured(module: FederatedModule, data: FederatedDataModule) -> dict[str, float]:
    """The learner's metrics on the validation batches by name, without ``val/``."""
    module.on_validation_epoch_start()
    metrics = {}
    for batch in data.val_dataloader():
        metrics = module.update_metrics(batch)
    return {name.removeprefix("val/"): float(metric.compute()) for name, metric in metrics.items()}
