"""Quality of the trained model itself, next to what leaks from its training."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from fedleak.core.metric import SHARE, Metric
from fedleak.evaluation.evaluation import Evaluation
from fedleak.tables.after.step import AfterStep
from fedleak.tables.cell_cache import CellRun
from fedleak.training.data import FederatedDataModule
from fedleak.training.federated import FederatedModule

RECORDED = "global-model"
"""Label of the attacked training's model."""
UNRECORDED = "global-model-unrecorded"
"""Label of the model of the same training without a recorder."""


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
        rounds = run.cell.rounds.which or run.recording.rounds
        round_count = len(run.recording.rounds)
        models = {number: run.recording.model(number) for number in rounds}
        # Seconds of a round mean something only beside those of the other training.
        seconds_recorded = run.train_seconds / round_count if self.unrecorded else None
        yield from _accuracies(run, RECORDED, models, seconds_recorded)
        if self.unrecorded:
            keeper = _Keeper()
            _, train_seconds = run.train({}, callbacks=[keeper])
            models = {number: keeper.before[number] for number in rounds}
            yield from _accuracies(run, UNRECORDED, models, train_seconds / round_count)


def _accuracies(
    run: CellRun, label: str, models: Mapping[int, Mapping[str, Tensor]], seconds: float | None
) -> Iterator[pd.DataFrame]:
    """A row of scores for the model of each round."""
    module, data = run.build()
    module.eval()
    for number, parameters in models.items():
        # A recording has the public parameters; private ones stay as they were built.
        module.load_state_dict(dict(parameters), strict=False)
        correct = _hits(module, data.val_dataloader())
        metrics = {"accuracy": [float(correct.mean())]}
        if seconds is not None:
            metrics["round_seconds"] = [seconds]
        yield run.scores(
            label,
            metrics,
            victims=[0],
            round=number,
            setting={"round": number + 1} if run.cell.rounds.separate else {},
            items=len(correct),
            positives=int(correct.sum()),
        )


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
        module.eval()
        # Clients' own images as a training draws them, against images that no client has.
        on_train = _hits(module, _examples_by_client(data))
        on_test = _hits(module, data.val_dataloader())
        metrics = {"train-accuracy": [float(on_train.mean())], "test-accuracy": [float(on_test.mean())]}
        yield run.scores(RECORDED, metrics, victims=[run.seed], round=len(run.recording.rounds))


def _examples_by_client(data: FederatedDataModule) -> Iterator[dict[str, Tensor]]:
    """The examples of each client, as a batch."""
    for client in range(data.num_clients):
        cohort = data.build_cohort(0, torch.tensor([client]))
        yield {name: values[0] for name, values in cohort.examples.items()}


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
