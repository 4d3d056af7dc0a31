"""What all possible rows of a table change in an update."""

import functools
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PossibleChanges:
    """What each possible row of each class, P in all, changes at the layer: ``c [x, 1]^T``.

    Attributes:
        points: ``(M, E + 1)`` what the layer gets of each possible row, itself or embedded, with a 1 appended.
        changes: ``(P, N)`` changes c of the bias, by row and then by class.
        row: ``(P,)`` row of each.
        label: ``(P,)`` class of each.
    """

    points: Tensor
    changes: Tensor
    row: Tensor
    label: Tensor

    def products(self, chosen: Tensor) -> Tensor:
        """``(P, m)`` scalar products with the chosen ``(m,)``."""
        # (c x^T).(c' x'^T) = (c.c') (x.x')
        inner = self.points @ self.points[self.row[chosen]].T
        return (self.changes @ self.changes[chosen].T).mul_(inner[self.row])

    def along(self, rows: Tensor) -> Tensor:
        """``(P,)`` scalar products with ``rows (N, D + 1)``."""
        return ((self.changes @ rows) * self.points[self.row]).sum(1)

    def matrices(self, chosen: Tensor) -> Tensor:
        """``(m, N * (D + 1))`` changes of weight and bias."""
        points = self.points[self.row[chosen]]
        return (self.changes[chosen][:, :, None] * points[:, None, :]).flatten(1)

    @functools.cached_property
    def squares(self) -> Tensor:
        """``(P,)`` squared lengths."""
        return self.changes.square().sum(1) * self.points.square().sum(1)[self.row]

    def misfit(self, rows: Tensor, chosen: Tensor, copies: Tensor) -> tuple[float, float]:
        """Length of what a step with copies of the chosen leaves of the update, and its rate, which fits best."""
        simulated = copies.double() @ self.matrices(chosen)
        # -rows = rate * simulated in least squares.
        rate = float(-(simulated @ rows.flatten()) / simulated.square().sum().clamp(min=1e-300))
        if not rate > 0:
            return float("inf"), rate
        return float((rows.flatten() + rate * simulated).norm()), rate
