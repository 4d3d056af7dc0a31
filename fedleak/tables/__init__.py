"""The papers' tables, each a grid over a training's configuration, and the command lines."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.tables.cell import Cell as Cell
    from fedleak.tables.quiet import quiet_trainer as quiet_trainer
    from fedleak.tables.running import run_table as run_table
    from fedleak.tables.table import Choice as Choice
    from fedleak.tables.table import Table as Table
    from fedleak.tables.table import read_table as read_table

__all__ = exports(__name__)
