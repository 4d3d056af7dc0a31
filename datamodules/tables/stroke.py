"""The stroke table as a published attack on federated trees divided it: hospitals with rows of ten columns."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.datamodules.images.base import LabelledImages
from fedleak.datamodules.tables.base import RowsDataModule

_COLUMNS = (
    # Name, lowest and highest value, step.
    ("age", 0, 120, 0.001),
    ("avg_glucose_level", 0, 400, 0.001),
    ("bmi", 0, 120, 0.001),
    ("gender", 0, 1, 1),
    ("hypertension", 0, 1, 1),
    ("heart_disease", 0, 1, 1),
    ("ever_married", 0, 1, 1),
    ("work_type", 0, 4, 1),
    ("Residence_type", 0, 1, 1),
    ("smoking_status", 0, 3, 1),
)
"""Columns in the order of the files. Some rows of the training were made between others, off the grid of the source."""
_MOST_BYTES = 2**26
"""Largest file that is read."""


class Stroke(RowsDataModule):
    """6,219 rows of ten columns at 5, 10, 20 or 30 hospitals, and 1,020 for the test; the class is a stroke.

    The division, the numbers of the categories, and the rows that balance the classes of the training are those of the
    published files. Rows are as they are there, not standardised, because trees do not ask for it. The attacker has
    rows of the validation, which then are not in the test; there is no other split, so that `split` has no effect.

    Files: ``root/stroke/nc_K/data/client_I/train/x_train.npy`` and the like, the folder ``data/stroke`` of
    https://github.com/necst/TimberStrike.

    Args:
        hospitals: number of clients.

    Raises:
        InputError: a file lacks, or is no table of ten columns with classes 0 and 1.

    References:
        [DiGennaro25].
    """

    folders = ("stroke",)
    name = "stroke"
    class_names: Sequence[str] = ("no stroke", "stroke")
    image_shape = (1, 1, len(_COLUMNS))

    def __init__(self, *, hospitals: Literal[5, 10, 20, 30] = 5, auxiliary_per_class: int = 10, **kwargs: Any) -> None:
        super().__init__(auxiliary_per_class=auxiliary_per_class, **kwargs)
        self.hospitals = hospitals

    @property
    def record_grid(self) -> tuple[Tensor, Tensor]:
        """Step and origin ``(1, 1, 10)`` of the columns."""
        step = torch.tensor([column[3] for column in _COLUMNS], dtype=torch.float64).reshape(self.image_shape)
        return step, torch.zeros_like(step)

    def auxiliary(self) -> dict[str, Tensor]:
        """The attacker's rows and classes, and the ranges of the columns; categories are numbers from 0."""
        description = []
        for number, (_, lowest, highest, step) in enumerate(_COLUMNS):
            description.append([number, 0, step, 0, round(lowest / step), round(highest / step)])
        columns = TableColumns.of(torch.tensor(description, dtype=torch.float64))
        return {**super().auxiliary(), COLUMNS: columns.tensor}

    @functools.cached_property
    def _tables(self) -> tuple[list[LabelledImages], LabelledImages]:
        """The training rows of each hospital, and all rows for the validation."""
        folder = self.data_root() / "stroke" / f"nc_{self.hospitals}" / "data"
        training = []
        validation = []
        for hospital in range(self.hospitals):
            training.append(_read(folder / f"client_{hospital}", "train"))
            validation.append(_read(folder / f"client_{hospital}", "valid"))
        together = LabelledImages(
            torch.cat([table.images for table in validation]), torch.cat([table.labels for table in validation])
        )
        return training, together

    @functools.cached_property
    def _numbers_of_attacker(self) -> Tensor:
        """``(K, k)`` numbers of the attacker's rows among those for the validation: the first of each class."""
        _, validation = self._tables
        by_class = []
        for label in range(self.num_classes):
            numbers = (validation.labels == label).nonzero().flatten()
            require(
                len(numbers) >= self.auxiliary_per_class,
                f"auxiliary_per_class of at most {len(numbers)}",
                self.auxiliary_per_class,
                "Give fewer.",
            )
            by_class.append(numbers[: self.auxiliary_per_class])
        return torch.stack(by_class)

    @functools.cached_property
    def rows(self) -> tuple[LabelledImages, LabelledImages]:  # type: ignore[override]
        """Rows of the hospitals and then of the attacker, and those for the test."""
        training, validation = self._tables
        of_attacker = validation.select(self._numbers_of_attacker.flatten())
        tables = [*training, of_attacker]
        everything = LabelledImages(
            torch.cat([table.images for table in tables]), torch.cat([table.labels for table in tables])
        )
        is_test = torch.ones(len(validation.labels), dtype=torch.bool)
        is_test[self._numbers_of_attacker.flatten()] = False
        return everything, validation.select(is_test.nonzero().flatten())

    @functools.cached_property
    def _parts(self) -> tuple[list[Tensor], Tensor]:
        # The rows of the hospitals stand one after the other, those of the attacker behind them.
        sizes = [len(table.labels) for table in self._tables[0]]
        of_hospitals = list(torch.split(torch.arange(sum(sizes)), sizes))
        of_attacker = torch.arange(self._numbers_of_attacker.numel()).reshape(self._numbers_of_attacker.shape)
        return of_hospitals, sum(sizes) + of_attacker


def _read(folder: Path, part: str) -> LabelledImages:
    """Rows and classes of one part of a client."""
    values = _array(folder / part / f"x_{part}.npy")
    labels = _array(folder / part / f"y_{part}.npy").ravel()
    where = str(folder / part)
    require(
        values.ndim == 2 and values.shape[1] == len(_COLUMNS) and len(values) == len(labels) > 0,
        f"rows of {len(_COLUMNS)} columns with a class each in {where}",
        f"{values.shape} and {labels.shape}",
        "Get the files again.",
    )
    are_valid = bool(np.isfinite(values).all()) and bool(np.isin(labels, (0, 1)).all())
    require(are_valid, f"finite numbers, and classes 0 and 1, in {where}", "others", "Get the files again.")
    rows = torch.from_numpy(values.astype(np.float32)).reshape(-1, 1, 1, len(_COLUMNS))
    return LabelledImages(rows, torch.from_numpy(labels.astype(np.int64)))


def _array(path: Path) -> np.ndarray[Any, Any]:
    """A file of NumPy without objects."""
    way_out = "Get it from https://github.com/necst/TimberStrike, folder data/stroke; see docs/reference/data.md."
    require(path.is_file(), f"the file {path}", "none", way_out)
    require(path.stat().st_size <= _MOST_BYTES, f"at most {_MOST_BYTES} bytes in {path}", path.stat().st_size, way_out)
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(expected=f"an array of NumPy in {path}", found=str(error), way_out=way_out) from None
    require(array.dtype.kind in "fiu", f"numbers in {path}", array.dtype, way_out)
    return np.asarray(array, np.float64)
