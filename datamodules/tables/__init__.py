"""Data sets of tables: rows with a class."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.datamodules.tables.csv_table import CsvTable as CsvTable
    from fedleak.datamodules.tables.lesion_records import LesionRecords as LesionRecords
    from fedleak.datamodules.tables.movielens_users import MovieLensUsers as MovieLensUsers
    from fedleak.datamodules.tables.sklearn_tables import SklearnTable as SklearnTable

__all__ = exports(__name__)
