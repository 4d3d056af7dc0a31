"""Base class of exporters."""

import abc
from pathlib import Path
from typing import ClassVar

from fedleak.core.argument_values import check_fields
from fedleak.evaluation.run import Run


class Exporter(abc.ABC):
    """Writes what a run found in a format of others, or sends it to a service; a frozen dataclass of its options.

    Attributes:
        name: name in ``fedleak export RUN --to NAME``.

    Example:
        >>> from pathlib import Path
        >>> from fedleak import Exporter
        >>> from fedleak.core.places import PACKAGE
        >>> from fedleak.evaluation.run import read_published
        >>> class BestValue(Exporter):
        ...     '''The attack with the largest mean AUC, as a line of text.'''
        ...
        ...     name = "best-value"
        ...
        ...     def export(self, run, directory):
        ...         best = run.results.query("metric == 'auc'").sort_values("mean").iloc[-1]
        ...         return f"{best['attack']} {best['mean']:.3f}"
        >>> run = read_published(PACKAGE / "reports" / "published_results" / "raifle_table5.json")
        >>> BestValue().export(run, Path("."))
        'direction 1.000'
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        check_fields(self)

    @abc.abstractmethod
    def export(self, run: Run, directory: Path) -> str:
        """Writes or sends the results of a run, and returns where they are, for the last line on the screen.

        Args:
            run: results of the run, as results.json has them.
            directory: folder of the run, for its other files and as the default place of what is written.

        Raises:
            InputError: the service does not answer, or a package is missing.
        """
