"""Base class of the steps after the attacks of a cell."""

from collections.abc import Iterable
from typing import ClassVar

import pandas as pd

from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.cell_training import CellRun


class AfterStep:
    """Step that adds comparisons to the scores of a cell; its constructor's arguments are its options.

    Attributes:
        name: name in the ``after`` of a table.
        metrics: metrics that it measures, in addition to those of attacks.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]] = ()

    def __call__(self, run: CellRun, evaluation: Evaluation) -> None:
        """Adds the step's rows to the scores of a finished cell."""
        rows = list(self.rows(run, evaluation))
        if rows:
            evaluation.scores = concat([evaluation.scores, *rows])

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterable[pd.DataFrame]:
        """Tables of scores to add; a step may also change the evaluation itself.

        Args:
            run: cell with its finished training.
            evaluation: scores so far.
        """
        raise NotImplementedError
