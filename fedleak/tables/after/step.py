"""Base class of the steps after the attacks of a cell that need its training; `evaluation.steps` has others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.scores import concat, with_setting
from fedleak.evaluation.steps import Step
from fedleak.tables.cell_cache import CellRun


class AfterStep(Step):
    """Comparison from the data or the model of a cell, or from further trainings.

    Example:
        >>> from fedleak import AfterStep, Metric
        >>> class ModelSize(AfterStep):
        ...     '''The number of weights of the trained model.'''
        ...
        ...     name = "model-size"
        ...     metrics = (Metric("weights", "The number of weights is that of the trained model.", leak=False),)
        ...
        ...     def rows(self, run, evaluation):
        ...         module, _ = run.trained()
        ...         weights = sum(value.numel() for value in module.parameters())
        ...         yield run.scores("model", {"weights": [weights]}, victims=[0])
        >>> ModelSize().name
        'model-size'
    """

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterable[pd.DataFrame]:
        """Tables of scores to add; figures and details are added to the evaluation, whose scores stay as they are."""
        return ()

    def columns(self, run: CellRun, scores: pd.DataFrame) -> Mapping[str, Sequence[Any]]:
        """Setting columns ``(N,)`` of all rows, those of other steps included, by key."""
        return {}

    def kept(self, scores: pd.DataFrame) -> "pd.Series[bool] | None":
        """Rows ``(N,)`` to report; None for all."""
        return None


def add_steps(steps: Sequence[AfterStep], run: CellRun, evaluation: Evaluation) -> None:
    """Adds the rows of all steps to the scores of a finished cell, then their columns, and then selects rows.

    The order of the steps changes the order of rows and columns alone.
    """
    tables: list[pd.DataFrame] = []
    for step in steps:
        tables += step.rows(run, evaluation)
    evaluation.scores = concat([evaluation.scores, *tables])
    for step in steps:
        evaluation.scores = with_setting(evaluation.scores, **step.columns(run, evaluation.scores))
    # All steps see all rows before the first one drops any.
    masks = [step.kept(evaluation.scores) for step in steps]
    for mask in masks:
        if mask is not None:
            evaluation.scores = evaluation.scores[mask.loc[evaluation.scores.index]]
