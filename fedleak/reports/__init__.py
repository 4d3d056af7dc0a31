"""Pages, figures and tables of scores."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.evaluation.run import Run as Run
    from fedleak.reports.join import join_runs as join_runs
    from fedleak.reports.notebook import show as show
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "join_runs": "fedleak.reports.join",
            "show": "fedleak.reports.notebook",
            "Run": "fedleak.evaluation.run",
        },
    )
