"""The papers' tables, each a grid over a training's configuration, and the command lines."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from experiments.cell import Cell as Cell
    from experiments.quiet import quiet_trainer as quiet_trainer
    from experiments.running import run_table as run_table
    from experiments.table import Choice as Choice
    from experiments.table import Table as Table
    from experiments.table import read_table as read_table

__all__ = exports(__name__)
