"""Schema of a table: the kinds and the ranges of its columns, and how a row becomes a vector."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.core.io.tables import Field
from fedleak.core.table_columns import TableColumns

Kind = Literal["number", "category"]
_OFF_RANGE = 1e-9
"""By which a number may lie outside of its range, after decimals were rounded."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        name: its name in the file.
        kind: ``number``, which the network gets standardised; ``category``, of which it gets a group of one-hot inputs.
        values: of a category, all possible ones.
        lowest: of a number, the least possible one.
        highest: the largest possible one.
        step: grid of a number: it is rounded to ``lowest`` plus a whole number of steps.
        missing: text that an empty field stands for: one of the values, or ``median``, that of the column's numbers.
            None refuses empty fields.

    Raises:
        InputError: an unknown kind, or no values, or no range with a step.
    """

    name: str
    kind: Kind = "category"
    values: Sequence[str] = ()
    lowest: float = 0.0
    highest: float = 0.0
    step: float = 1.0
    missing: str | None = None

    def __post_init__(self) -> None:
        where = f"column {self.name}"
        kinds = get_args(Kind)
        require(self.kind in kinds, f"a kind among {', '.join(kinds)} for {where}", self.kind, "Correct the schema.")
        if self.kind == "number":
            self._check_steps(where)
            return
        distinct = len(set(self.values))
        require(
            distinct > 1 and distinct == len(self.values),
            f"two different values or more for {where}",
            f"{list(self.values)[:8]}",
            "List them.",
        )

    def _check_steps(self, where: str) -> None:
        steps = -1.0
        if self.step > 0:
            steps = (self.highest - self.lowest) / self.step
        require(
            steps > 0 and math.isclose(steps, round(steps), abs_tol=1e-6),
            f"lowest below highest, a whole number of steps apart, for {where}",
            f"{self.lowest} to {self.highest} in steps of {self.step}",
            "Correct them.",
        )

    @property
    def size(self) -> int:
        """Number of possible values."""
        if self.kind == "number":
            return round((self.highest - self.lowest) / self.step) + 1
        return len(self.values)

    @property
    def field(self) -> Field:
        """How its text is read: to the number of a value from 0, or -1 for a missing number."""
        or_nothing = ""
        if self.missing is not None:
            or_nothing = ", or nothing"
        if self.kind == "number":
            meaning = f"a number from {self.lowest:g} to {self.highest:g}{or_nothing}"
            return Field(meaning, self._level)
        meaning = f"one of {', '.join(self.values)}{or_nothing}"
        return Field(meaning, self._index)

    def _level(self, text: str) -> int:
        if not text and self.missing == "median":
            return -1
        value = float(text or self.missing or "")
        if not self.lowest - _OFF_RANGE <= value <= self.highest + _OFF_RANGE:
            raise ValueError(text)
        return round((value - self.lowest) / self.step)

    def _index(self, text: str) -> int:
        return list(self.values).index(text or self.missing or "")


@dataclass(frozen=True)
class Encoding:
    """Rows of a table as vectors.

    Attributes:
        columns: the description that the server has.
        values: ``(N, C)`` int64 numbers of the values, from 0.
        rows: ``(N, D)`` float64 vectors.
    """

    columns: TableColumns
    values: Tensor
    rows: Tensor


def encode(schema: Sequence[Column], values: Tensor) -> Encoding:
    """Vectors of rows: numbers minus their mean over their standard deviation, of the whole table; one-hot groups.

    Args:
        schema: the columns.
        values: ``(N, C)`` int64 numbers of the values, -1 for a missing number, which becomes the median of the others
            (the lower of two).
    """
    # A row for each input, in the order of `TableColumns`: column, category, step, origin, lowest, highest.
    inputs = []
    values = values.clone()
    for number, column in enumerate(schema):
        column_values = values[:, number]
        if column.kind == "category":
            inputs += [(number, 1.0, 1.0, 0.0, 0.0, 1.0)] * column.size
            continue
        # In place: a missing number becomes the median of the others.
        is_present = column_values >= 0
        median: Tensor | int = 0
        if bool(is_present.any()):
            median = column_values[is_present].median()
        column_values[~is_present] = median
        exact = column_values.double()
        # Level l has the input (l - mean) / deviation: a step of 1 / deviation from the origin -mean / deviation.
        deviation = float(exact.std(correction=0)) or 1.0
        inputs.append((number, 0.0, 1 / deviation, -float(exact.mean()) / deviation, 0.0, column.size - 1.0))
    columns = TableColumns.of(torch.tensor(inputs, dtype=torch.float64))
    return Encoding(columns, values, columns.encode(values))
