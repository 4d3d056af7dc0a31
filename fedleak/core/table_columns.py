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
    def of(cls, held: Tensor) -> Self:
        """The description of `tensor`.

        Raises:
            ViewError: the tensor is none.
        """
        if held.dim() != 2 or held.shape[1] != len(dataclasses.fields(cls)):
            raise ViewError(f"expected columns (D, {len(dataclasses.fields(cls))}), got {tuple(held.shape)}")
        kinds = torch.int64, torch.bool, torch.float64, torch.float64, torch.int64, torch.int64
        return cls(*(value.to(kind) for value, kind in zip(held.unbind(1), kinds, strict=True)))

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
        return torch.stack([self.category[own[0]] for own in self.groups])

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Number of possible values of each column."""
        return [
            len(own) if bool(self.category[own[0]]) else int(self.highest[own[0]] - self.lowest[own[0]]) + 1
            for own in self.groups
        ]

    @property
    def possible(self) -> int:
        """Number of possible rows."""
        return math.prod(self.sizes)

    def decode(self, rows: Tensor) -> Tensor:
        """``(N, C)`` int64 values of the possible rows nearest to ``rows (N, ...)``, column by column.

        The value of a number is its level above the lowest, that of a category the place of its largest input.
        """
        flat = rows.double().flatten(1)
        levels = ((flat - self.origin) / self.step).round() - self.lowest
        levels = levels.nan_to_num().clamp(min=0).minimum((self.highest - self.lowest).double()).long()
        of_each = [flat[:, own].argmax(1) if bool(self.category[own[0]]) else levels[:, own[0]] for own in self.groups]
        return torch.stack(of_each, dim=1)

    def encode(self, values: Tensor) -> Tensor:
        """``(N, D)`` float64 rows of values ``(N, C)``."""
        rows = torch.zeros(len(values), len(self.column), dtype=torch.float64)
        for place, own in enumerate(self.groups):
            if bool(self.category[own[0]]):
                rows[torch.arange(len(values)), own[values[:, place]]] = 1
            else:
                rows[:, own[0]] = self.origin[own[0]] + (values[:, place] + self.lowest[own[0]]) * self.step[own[0]]
        return rows

    def every(self) -> Tensor:
        """``(M, C)`` values of all M possible rows."""
        return torch.cartesian_prod(*(torch.arange(size) for size in self.sizes)).reshape(-1, len(self.sizes))

    def within_a_step(self, guesses: Tensor, values: Tensor) -> Tensor:
        """``(N, C)`` bool, whether values ``(N, C)`` are right: numbers to a step of the grid, categories exactly."""
        return (guesses - values).abs() <= (~self.is_category).long()
