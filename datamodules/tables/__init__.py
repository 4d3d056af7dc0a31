"""Data sets of tables: rows with a class."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.datamodules.tables.csv_table import CsvTable as CsvTable
    from fedleak.datamodules.tables.lesion_records import LesionRecords as LesionRecords
    from fedleak.datamodules.tables.movielens_users import MovieLensUsers as MovieLensUsers
    from fedleak.datamodules.tables.sklearn_tables import SklearnTable as SklearnTable
    from fedleak.datamodules.tables.stroke import Stroke as Stroke
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "CsvTable": "fedleak.datamodules.tables.csv_table",
            "LesionRecords": "fedleak.datamodules.tables.lesion_records",
            "MovieLensUsers": "fedleak.datamodules.tables.movielens_users",
            "SklearnTable": "fedleak.datamodules.tables.sklearn_tables",
            "Stroke": "fedleak.datamodules.tables.stroke",
        },
    )
