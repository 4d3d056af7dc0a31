"""A step that needs the training of a cell: how far the training moved the model."""

from collections.abc import Iterator

import pandas as pd

from fedleak.core.metric import POSITIVE, Metric
from fedleak.evaluation.runner import Evaluation
from fedleak.tables.after import AfterStep
from fedleak.tables.cell_cache import CellRun


class ModelChange(AfterStep):
    """L2 distance of the trained model from the one before the training."""

    name = "model-change"
    metrics = (
        Metric(
            "model-change", "The model change is the L2 distance that the training moved it.", leak=False, span=POSITIVE
        ),
    )

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        before = run.build()[0].state_dict()
        after = run.trained()[0].state_dict()
        squares = sum(float((after[name] - value).square().sum()) for name, value in before.items())
        yield run.scores("model", {"model-change": [squares**0.5]}, victims=[0], round=len(run.recording.rounds) - 1)
