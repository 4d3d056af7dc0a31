"""A step after the attacks of a cell."""

import abc
from typing import TYPE_CHECKING, ClassVar

from evaluation.runner import Evaluation

if TYPE_CHECKING:
    from experiments.cell_run import CellRun


class AfterStep(abc.ABC):
    """Adds to a cell's scores what they are read next to; its constructor's arguments are its options.

    Attributes:
        name: in the ``after`` of a table.
        metrics: names of what it measures, beyond the metrics of attacks.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        """What is to be reported.

        Args:
            run: the finished training, and what it is a cell of.
            evaluation: the scores so far.
        """
