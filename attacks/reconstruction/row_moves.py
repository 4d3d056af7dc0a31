"""Single moves of rows of a table: a number to the next level, a category or a class to another."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.peeled_rows import DistinctRows, RowChanges
from fedleak.core.table_columns import TableColumns


@dataclass(frozen=True)
class RowMoves:
    """Rows that become others, each next to the row that it was.

    Attributes:
        values: ``(L, C)`` values after the move.
        classes: ``(L,)`` class after the move.
        row: ``(L,)`` number of the row that moves.
        in_class: ``(L,)`` bool, whether only the class moves.
        least: ``(L,)`` int64 fewest times that the move can be made: less than 0 where the other way is possible.
        most: ``(L,)`` int64 most times.
    """

    values: Tensor
    classes: Tensor
    row: Tensor
    in_class: Tensor
    least: Tensor
    most: Tensor


class _Move(NamedTuple):
    """One of `RowMoves`."""

    values: Tensor
    label: int
    row: int
    least: int
    most: int


def row_moves(distinct: DistinctRows, changes: RowChanges, *, only_numbers: bool) -> RowMoves:
    """All single moves of all rows."""
    kinds = changes.biases(distinct.values[:1]).shape[1]
    moves = list[_Move]()
    for row, (row_values, label) in enumerate(zip(distinct.values, distinct.classes.tolist(), strict=True)):
        for values, least, most in _moves_of_values(row_values, changes.columns, only_numbers=only_numbers):
            moves.append(_Move(values, label, row, least, most))
        if only_numbers:
            continue
        # To each other class, which can be once.
        for other_label in range(kinds):
            if other_label != label:
                moves.append(_Move(row_values, other_label, row, 0, 1))
    classes = torch.tensor([move.label for move in moves], dtype=torch.int64)
    rows = torch.tensor([move.row for move in moves], dtype=torch.int64)
    return RowMoves(
        values=torch.stack([move.values for move in moves]) if moves else distinct.values[:0],
        classes=classes,
        row=rows,
        in_class=classes != distinct.classes[rows],
        least=torch.tensor([move.least for move in moves], dtype=torch.int64),
        most=torch.tensor([move.most for move in moves], dtype=torch.int64),
    )


def _moves_of_values(values: Tensor, columns: TableColumns, *, only_numbers: bool) -> list[tuple[Tensor, int, int]]:
    """Values ``(C,)`` after each move of a row, and how often the move can be made, at least and at most."""
    moves = list[tuple[Tensor, int, int]]()
    for column, size in enumerate(columns.sizes):
        level = int(values[column])
        if not bool(columns.is_category[column]):
            # To the next level, or from the highest one to the one before; often enough to reach all levels.
            if level + 1 < size:
                moves.append((_with_value(values, column, level + 1), -level, size - 1 - level))
            else:
                moves.append((_with_value(values, column, level - 1), level + 1 - size, level))
        elif not only_numbers:
            # To each other category, which can be once.
            for category in range(size):
                if category != level:
                    moves.append((_with_value(values, column, category), 0, 1))
    return moves


def _with_value(values: Tensor, column: int, value: int) -> Tensor:
    changed = values.clone()
    changed[column] = value
    return changed
