"""Data sets of tables: rows with a class."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from datamodules.tables.sklearn_tables import SklearnTable as SklearnTable

__all__ = exports(__name__)
