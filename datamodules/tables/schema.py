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
            levels = (self.highest - self.lowest) / self.step if self.step > 0 else -1.0
            whole = levels > 0 and math.isclose(levels, round(levels), abs_tol=1e-6)
            found = f"{self.lowest} to {self.highest} in steps of {self.step}"
            require(whole, f"lowest below highest, a whole number of steps apart, for {where}", found, "Correct them.")
            return
        values = len(set(self.values))
        found = f"{list(self.values)[:8]}"
        require(
            values > 1 and values == len(self.values), f"two different values or more for {where}", found, "List them."
        )

    @property
    def size(self) -> int:
        """Number of possible values."""
        return round((self.highest - self.lowest) / self.step) + 1 if self.kind == "number" else len(self.values)

    @property
    def field(self) -> Field:
        """How its text is read: to the number of a value from 0, or -1 for a missing number."""
        empty = "" if self.missing is None else ", or nothing"
        if self.kind == "number":
            return Field(f"a number from {self.lowest:g} to {self.highest:g}{empty}", self._level)
        return Field(f"one of {', '.join(self.values)}{empty}", self._place)

    def _level(self, text: str) -> int:
        if not text and self.missing == "median":
            return -1
        value = float(text or self.missing or "")
        if not self.lowest - _OFF_RANGE <= value <= self.highest + _OFF_RANGE:
            raise ValueError(text)
        return round((value - self.lowest) / self.step)

    def _place(self, text: str) -> int:
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
    made = []
    values = values.clone()
    for place, column in enumerate(schema):
        own = values[:, place]
        if column.kind == "category":
            made += [(place, 1.0, 1.0, 0.0, 0.0, 1.0)] * column.size
            continue
        own[own < 0] = own[own >= 0].median() if bool((own >= 0).any()) else 0
        exact = own.double()
        deviation = float(exact.std(correction=0)) or 1.0
        made.append((place, 0.0, 1 / deviation, -float(exact.mean()) / deviation, 0.0, column.size - 1.0))
    columns = TableColumns.of(torch.tensor(made, dtype=torch.float64))
    return Encoding(columns, values, columns.encode(values))
