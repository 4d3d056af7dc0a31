"""Pages, figures and tables of scores."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from reports.run import Run as Run
    from reports.write_run import join_runs as join_runs

__all__ = exports(__name__)
