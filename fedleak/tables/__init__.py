"""The papers' tables, each a grid over a training's configuration, and the command lines."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.tables.cell import Cell as Cell
    from fedleak.tables.quiet import quiet_trainer as quiet_trainer
    from fedleak.tables.running import run_table as run_table
    from fedleak.tables.table import Choice as Choice
    from fedleak.tables.table import Table as Table
    from fedleak.tables.table import read_table as read_table
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Cell": "fedleak.tables.cell",
            "quiet_trainer": "fedleak.tables.quiet",
            "run_table": "fedleak.tables.running",
            "Choice": "fedleak.tables.table",
            "Table": "fedleak.tables.table",
            "read_table": "fedleak.tables.table",
        },
    )
