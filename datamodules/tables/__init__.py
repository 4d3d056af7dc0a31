"""Data sets of tables: rows with a class."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from datamodules.tables.csv_table import CsvTable as CsvTable
    from datamodules.tables.lesion_records import LesionRecords as LesionRecords
    from datamodules.tables.movielens_users import MovieLensUsers as MovieLensUsers
    from datamodules.tables.sklearn_tables import SklearnTable as SklearnTable

__all__ = exports(__name__)
