"""Public description of a table's columns as the network gets them: which vectors can be a row."""

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedleak.core.errors import ViewError

COLUMNS = "columns"
"""Auxiliary data of the server: the description as a tensor, see `TableColumns.tensor`. Who defines the network's
inputs has it."""


@dataclass(frozen=True)
class TableColumns:
    """Columns of a table: numbers on a grid of their own, and categories as groups of one-hot inputs.

    Input d of a number is ``origin[d] + level * step[d]`` with a whole level between ``lowest[d]`` and ``highest[d]``.
    Of the inputs of a category, one is 1 and all others are 0.

    Attributes:
        column: ``(D,)`` int64 number of the column that each input belongs to, ascending from 0.
        category: ``(D,)`` bool, whether the column is a category.
        step: ``(D,)`` float64, 1 for a category.
        origin: ``(D,)`` float64, 0 for a category.
        lowest: ``(D,)`` int64, 0 for a category.
        highest: ``(D,)`` int64, 1 for a category.

    >>> columns = TableColumns(*map(torch.tensor, ([0, 1, 1], [False, True, True], [0.5, 1, 1], [-1.0, 0, 0],
    ...     [0, 0, 0], [4, 1, 1])))
    >>> columns.encode(torch.tensor([[3, 1]])).tolist()
    [[0.5, 0.0, 1.0]]
    >>> columns.decode(torch.tensor([[0.6, 0.2, 0.7]])).tolist()
    [[3, 1]]
    >>> columns.possible
    10
    """

    column: Tensor
    category: Tensor
    step: Tensor
    origin: Tensor
    lowest: Tensor
    highest: Tensor

    @classmethod
    def of(cls, description: Tensor) -> Self:
        """The description of `tensor`.

        Raises:
            ViewError: the tensor is none.
        """
        attributes = len(dataclasses.fields(cls))
        if description.dim() != 2 or description.shape[1] != attributes:
            raise ViewError(f"expected columns (D, {attributes}), got {tuple(description.shape)}")
        column, category, step, origin, lowest, highest = description.unbind(1)
        return cls(
            column=column.to(torch.int64),
            category=category.to(torch.bool),
            step=step.to(torch.float64),
            origin=origin.to(torch.float64),
            lowest=lowest.to(torch.int64),
            highest=highest.to(torch.int64),
        )

    @property
    def tensor(self) -> Tensor:
        """``(D, 6)`` float64, the attributes in their order."""
        return torch.stack([getattr(self, field.name).double() for field in dataclasses.fields(self)], dim=1)

    @functools.cached_property
    def groups(self) -> list[Tensor]:
        """Inputs of each of the C columns."""
        return [(self.column == number).nonzero().flatten() for number in range(int(self.column.max()) + 1)]

    @functools.cached_property
    def is_category(self) -> Tensor:
        """``(C,)`` bool, whether each column is a category."""
        return torch.stack([self.category[inputs[0]] for inputs in self.groups])

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Number of possible values of each column."""
        sizes = []
        for inputs in self.groups:
            first = inputs[0]
            if bool(self.category[first]):
                sizes.append(len(inputs))
            else:
                sizes.append(int(self.highest[first] - self.lowest[first]) + 1)
        return sizes

    @property
    def possible(self) -> int:
        """Number of possible rows."""
        return math.prod(self.sizes)

    def decode(self, rows: Tensor) -> Tensor:
        """``(N, C)`` int64 values of the possible rows nearest to ``rows (N, ...)``, column by column.

        The value of a number is its level above the lowest, that of a category the place of its largest input.
        """
        flat = rows.double().flatten(1)
        # Steps of the grid above the lowest value, within the column's range.
        levels = ((flat - self.origin) / self.step).round() - self.lowest
        levels = levels.nan_to_num().clamp(min=0).minimum((self.highest - self.lowest).double()).long()
        columns = []
        for inputs in self.groups:
            if bool(self.category[inputs[0]]):
                # The nearest one-hot vector has its 1 where the input is largest.
                columns.append(flat[:, inputs].argmax(1))
            else:
                columns.append(levels[:, inputs[0]])
        return torch.stack(columns, dim=1)

    def encode(self, values: Tensor) -> Tensor:
        """``(N, D)`` float64 rows of values ``(N, C)``."""
        rows = torch.zeros(len(values), len(self.column), dtype=torch.float64)
        for column, inputs in enumerate(self.groups):
            first = inputs[0]
            if bool(self.category[first]):
                rows[torch.arange(len(values)), inputs[values[:, column]]] = 1
            else:
                rows[:, first] = self.origin[first] + (values[:, column] + self.lowest[first]) * self.step[first]
        return rows

    def every(self) -> Tensor:
        """``(M, C)`` values of all M possible rows."""
        values = [torch.arange(size) for size in self.sizes]
        # The product of a single column comes as a vector.
        return torch.cartesian_prod(*values).reshape(-1, len(self.sizes))

    def within_a_step(self, guesses: Tensor, values: Tensor) -> Tensor:
        """``(N, C)`` bool, whether values ``(N, C)`` are right: numbers to a step of the grid, categories exactly."""
        tolerance = (~self.is_category).long()
        return (guesses - values).abs() <= tolerance
