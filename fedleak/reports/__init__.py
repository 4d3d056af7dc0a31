"""Pages, figures and tables of scores."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.reports.join import join_runs as join_runs
    from fedleak.reports.notebook import show as show
    from fedleak.reports.run import Run as Run

__all__ = exports(__name__)
