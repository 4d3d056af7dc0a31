"""Tables of scikit-learn, standardised as most users of tables do: real rows that need no download."""

import functools
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import sklearn.datasets
import torch
from torch import Tensor

from fedleak.datamodules.images.base import LabelledImages, split_test
from fedleak.datamodules.tables.base import RowsDataModule

_DIGITS = 4
"""Digits of the largest value of a column to which its values are given."""


class SklearnTable(RowsDataModule):
    """A table of scikit-learn: 569 patients with 30 columns, 442 with 10, or 1,797 digits with 64 of whole numbers.

    The target of ``diabetes``, how far the disease has progressed after a year, becomes two classes at its median.

    Each column is rounded to four digits of its largest value, its precision, and standardised with the mean and the
    standard deviation of the whole table; a constant column becomes 0. A row is an image of one line for the networks.
    A fifth of the rows is for the test.

    Files: none; scikit-learn contains them.

    Args:
        table: the table.

    References:
        [Wolberg95]. [Efron04a], for ``diabetes``. [Alpaydin98].
    """

    folders = ("breast-cancer", "diabetes", "digits-table")
    _classes: ClassVar[dict[str, Sequence[str]]] = {
        "breast-cancer": ("malignant", "benign"),
        "diabetes": ("below the median", "from the median"),
        "digits-table": tuple(str(digit) for digit in range(10)),
    }
    _widths: ClassVar[dict[str, int]] = {"breast-cancer": 30, "diabetes": 10, "digits-table": 64}

    def __init__(
        self,
        *,
        table: Literal["breast-cancer", "diabetes", "digits-table"] = "breast-cancer",
        auxiliary_per_class: int = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(auxiliary_per_class=auxiliary_per_class, **kwargs)
        self.name, self.class_names = table, self._classes[table]
        self.image_shape = (1, 1, self._widths[table])

    @classmethod
    def folder_arguments(cls, folder: str) -> dict[str, Any]:
        return {"table": folder}

    @property
    def record_grid(self) -> tuple[Tensor, Tensor]:
        """Step and origin ``(1, 1, D)`` of the standardised columns."""
        _, _, step, mean, deviation = self._table
        standardised_step = torch.from_numpy(step / deviation).reshape(self.image_shape)
        standardised_origin = torch.from_numpy(-mean / deviation).reshape(self.image_shape)
        return standardised_step, standardised_origin

    @functools.cached_property
    def _table(self) -> tuple[npt.NDArray[np.float64], ...]:
        """Values ``(N, D)`` and labels ``(N,)``; and of each column ``(D,)`` step, mean and standard deviation."""
        if self.name == "diabetes":
            values, target = sklearn.datasets.load_diabetes(return_X_y=True, scaled=False)
            labels = target >= np.median(target)
        elif self.name == "breast-cancer":
            values, labels = sklearn.datasets.load_breast_cancer(return_X_y=True)
        else:
            values, labels = sklearn.datasets.load_digits(return_X_y=True)
        # The step of a column is the last of `_DIGITS` digits of its largest value, and at least 1 for whole numbers.
        largest = np.abs(values).max(0)
        magnitude = np.floor(np.log10(largest, where=largest > 0, out=np.zeros_like(largest)))
        step = 10.0 ** (magnitude + 1 - _DIGITS)
        are_whole = (values == np.rint(values)).all(0)
        step = np.where(are_whole, np.maximum(step, 1.0), step)
        values = np.rint(values / step) * step
        # A constant column is only moved to 0.
        deviation = values.std(0)
        return values, labels, step, values.mean(0), np.where(deviation > 0, deviation, 1.0)

    @functools.cached_property
    def rows(self) -> tuple[LabelledImages, LabelledImages]:  # type: ignore[override]
        """Rows for the training and for the test."""
        values, labels, _, mean, deviation = self._table
        standardised = ((values - mean) / deviation).astype(np.float32)
        images = torch.from_numpy(standardised).reshape(-1, *self.image_shape)
        table = LabelledImages(images, torch.from_numpy(labels.astype(np.int64)))
        return split_test(table, class_names=self.class_names, fraction=0.2, seed=self.seed)
