"""Quality of the trained model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from datamodules.base import FederatedDataModule
from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.after.step import AfterStep
from modules.federated import FederatedModule

if TYPE_CHECKING:
    from experiments.cell_run import CellRun


@dataclass(frozen=True, kw_only=True)
class Utility(AfterStep):
    """What the learner measures of its model on the test examples, such as NDCG@10, after the last round.

    Row ``none``, one value for each training.

    Attributes:
        before: also of the model before the first round, row ``untrained``.
    """

    name: ClassVar[str] = "utility"
    metrics: ClassVar[tuple[str, ...]] = ("ndcg@10",)
    before: bool = False

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        ends = {"none": measured(*run.trained()), **({"untrained": measured(*run.build())} if self.before else {})}
        rounds = len(run.recording.rounds)
        rows = [
            run.scores(
                name, {metric: [value] for metric, value in values.items()}, victims=[run.cell.seed], round=rounds
            )
            for name, values in ends.items()
        ]
        evaluation.scores = concat([evaluation.scores, *rows])
        return evaluation


@torch.no_grad()
def measured(module: FederatedModule, data: FederatedDataModule) -> dict[str, float]:
    """By name what a learner measures on the validation batches of its data, without ``val/``."""
    module.on_validation_epoch_start()
    metrics = {}
    for batch in data.val_dataloader():
        metrics = module.update_metrics(batch)
    return {name.removeprefix("val/"): float(metric.compute()) for name, metric in metrics.items()}
