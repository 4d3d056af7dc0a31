"""Differences that rows of a table make in an update when they become others."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.peeled_rows import DistinctRows, RowChanges


@dataclass(frozen=True, kw_only=True)
class UpdateDifferences:
    """Changes of an update by L rows that become others: ``c' [x', 1]^T - c [x, 1]^T``.

    Attributes:
        points_after: ``(L, E + 1)`` what the layer gets of each row afterwards, with a 1 appended.
        points_before: ``(L, E + 1)`` the same before.
        biases_after: ``(L, N)`` changes of the biases by each row afterwards.
        biases_before: ``(L, N)`` the same before.
    """

    points_after: Tensor
    points_before: Tensor
    biases_after: Tensor
    biases_before: Tensor

    @classmethod
    def of(cls, values: Tensor, classes: Tensor, row: Tensor, distinct: DistinctRows, changes: RowChanges) -> Self:
        """Those of rows of the given numbers that become rows of values and classes."""
        points_before, biases_before = distinct.changed_by(changes)
        return cls(
            points_after=changes.points(values),
            points_before=points_before[row],
            biases_after=changes.biases(values)[torch.arange(len(values)), classes],
            biases_before=biases_before[row],
        )

    def products(self, other: Self) -> Tensor:
        """``(L, M)`` scalar products with other differences, without making the matrices."""
        total = torch.zeros(len(self.points_after), len(other.points_after), dtype=torch.float64)
        # (c x^T).(d y^T) = (c.d) (x.y)
        for points, biases, sign in self._terms():
            for other_points, other_biases, other_sign in other._terms():
                total += sign * other_sign * (points @ other_points.T) * (biases @ other_biases.T)
        return total

    def along(self, matrix: Tensor) -> Tensor:
        """``(L,)`` scalar products with a matrix ``(N, E + 1)``."""
        after = ((self.biases_after @ matrix) * self.points_after).sum(1)
        before = ((self.biases_before @ matrix) * self.points_before).sum(1)
        return after - before

    def _terms(self) -> list[tuple[Tensor, Tensor, int]]:
        """Points, changes of the biases and sign of what comes and of what goes."""
        return [(self.points_after, self.biases_after, 1), (self.points_before, self.biases_before, -1)]
