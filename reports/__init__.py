"""Pages, figures and tables of scores."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from reports.join import join_runs as join_runs
    from reports.notebook import show as show
    from reports.run import Run as Run

__all__ = exports(__name__)
