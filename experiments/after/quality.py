"""The quality of the model itself, user by user, trained over devices and in one place."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
import torch

from datamodules.devices.base import OwnedDataModule
from datamodules.devices.centralised import Pooled
from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.after.step import AfterStep

if TYPE_CHECKING:
    from experiments.cell_run import CellRun

FEDERATED, CENTRAL = "global-model", "central-model"
"""Labels of the model before the last round, and of one trained in one place."""
_TESTED_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class Quality(AfterStep):
    """The learner's own metric on each user's held-out examples (deanonymization, table 2).

    Attributes:
        central: epochs of training on all devices' examples in one place, next to it; None for none.
    """

    name: ClassVar[str] = "quality"
    metrics: ClassVar[tuple[str, ...]] = ("top5", "mae", "ap-labels")
    central: int | None = None

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        module, data = run.build()
        assert isinstance(data, OwnedDataModule)
        module.load_state_dict(run.recording.model(run.recording.rounds[-1]), strict=False)
        found = [evaluation.scores, _scores(run, FEDERATED, module, data)]
        if self.central is not None:
            overrides = {"trainer.max_steps": self.central, "model.defenses": []}
            central, _ = run.train(overrides, data=Pooled(data))
            found.append(_scores(run, CENTRAL, central, data))
        evaluation.scores = concat(found)
        return evaluation


def _scores(run: "CellRun", label: str, module: Any, data: OwnedDataModule) -> pd.DataFrame:
    module.eval()
    tested = {user: numbers for user, numbers in enumerate(data.device_split.test) if len(numbers)}
    values = []
    for numbers in tested.values():
        module.quality.reset()
        with torch.no_grad():
            for part in torch.split(numbers, _TESTED_AT_ONCE):
                module.update_metrics(data.fields(part))
        values.append(float(module.quality.compute()))
    examples = [len(numbers) for numbers in tested.values()]
    last = run.recording.rounds[-1]
    return run.scores(label, {module.metric: values}, victims=list(tested), round=last, items=examples)
