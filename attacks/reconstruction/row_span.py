"""Span of the rows of a linear layer's update, of which records are subtracted."""

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.linear_layer import equal_neighbours
from fedleak.attacks.reconstruction.pixel_grid import LEVELS

GAP = 0.1
"""Largest ratio of the singular value after the last of the records to that one."""
TYPICAL = 0.3
"""Standard deviation of an error that is uniform up to a bound, as a share of that bound."""
SURE = 6.0
"""Standard deviations that an error may have."""


class RowSpan:
    """Rows ``(N, D + 1)`` of an update, as ``columns @ core @ basis``, of which records are subtracted.

    Args:
        rows: ``(N, D + 1)`` float64.
        records: number of records of the client; of a sum of clients, the rows show more.
        bounds: ``(N, D + 1)`` bounds on the errors of the rows' numbers; None for no more than the precision.
        precision: relative precision in which the client computes.
        model: weight and bias ``(N, D + 1)`` of the layer.
    """

    def __init__(self, rows: Tensor, records: int, *, bounds: Tensor | None, precision: float, model: Tensor) -> None:
        self.model = model
        self.precision = precision
        if bounds is None:
            bounds = torch.zeros_like(rows)
        left_vectors, values, right_vectors = decomposed(rows)
        # Errors that are uniform up to their bounds have this largest singular value.
        spread = rows.shape[0] ** 0.5 + rows.shape[1] ** 0.5  # norm of a matrix of random numbers of variance 1
        rounding = TYPICAL * float(bounds.square().mean().sqrt()) * spread
        self.rank = _shown_rank(values, records, floor=max(4 * precision * float(values[0]), 2 * rounding))
        self.exact = self.rank > 0 and (self.rank == len(values) or _ends(values, self.rank))
        """Whether the rows are sums of so few records, and no noise."""
        self.has_columns = self.exact and self.rank < int((rows[:, -1] != 0).sum())
        """Whether the span of the columns says anything: with as many records as neurons, it holds every vector."""
        self.columns = left_vectors[:, : self.rank]
        self.basis = right_vectors[: self.rank]
        self.core = values[: self.rank].diag()
        self.core_values = values[: self.rank]
        """Singular values of the rows; the direction of the last is known worst."""
        beyond = float(values[self.rank]) if self.rank < len(values) else 0.0
        self.deviation = max(rounding, beyond) / spread
        """Standard deviation of the numbers' errors, also of such that only the singular values show."""
        self.slack = 1.0
        """Relative distance up to which a vector may be in the span."""
        if self.rank:
            # Rounding of the rows turns the directions of the smallest singular values most.
            self.slack = max(1e-6, 30 * precision * float(values[0] / values[self.rank - 1]))
        self.bounds = bounds
        if self.exact and rounding:
            # Where the singular values show larger errors than the bounds allow, all bounds are too small.
            self.bounds = bounds * max(1.0, self.deviation * spread / rounding)
        self.pairs = equal_neighbours(model[:, :-1]).nonzero().flatten()
        """Neurons that measure the same as the next one; the difference of both rows may be a multiple of a record."""
        self.left = self.rank
        """Rank of the rows without the records that were subtracted."""
        self._decomposition: tuple[Tensor, Tensor, Tensor] | None = None

    def remaining(self) -> tuple[Tensor, Tensor]:
        """Rows ``(N, D + 1)`` without the records that were subtracted, and an orthonormal basis of their span."""
        basis = self.residual()[2] @ self.basis
        return self.columns @ self.core @ self.basis, basis

    def residual(self) -> tuple[Tensor, Tensor, Tensor]:
        """Singular value decomposition of the core without the records that were subtracted."""
        if self._decomposition is None:
            self._decomposition = decomposed(self.core)
        left_vectors, values, right_vectors = self._decomposition
        return left_vectors[:, : self.left], values[: self.left], right_vectors[: self.left]

    def coordinates(self, point: Tensor) -> Tensor:
        """``(R,)`` coordinates in the basis of a record ``(D + 1,)`` with a 1 appended."""
        return point @ self.basis.T

    def subtract(self, change: Tensor, point: Tensor, *, change_error: Tensor, in_columns: bool) -> None:
        """Subtracts a record ``(D + 1,)`` that makes a change ``(N,)`` of the bias, and adds its error to the bounds.

        If the change is in the span of the columns, the rank falls by one.
        """
        self.core = self.core - (change @ self.columns)[:, None] * self.coordinates(point)
        self._decomposition = None
        self.bounds = self.bounds + change_error[:, None]
        if in_columns:
            self.left -= 1

    def with_differences(self, rows: Tensor) -> Tensor:
        """``(L, ...)`` rows of the neurons, and differences of neighbours that measure the same."""
        return torch.cat([rows, rows[self.pairs] - rows[self.pairs + 1]])

    def bounds_with_differences(self) -> Tensor:
        """``(L, D + 1)`` bounds on the errors of rows `with_differences`: errors of a difference add up."""
        return torch.cat([self.bounds, self.bounds[self.pairs] + self.bounds[self.pairs + 1]])

    def ratios(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``(L,)`` numbers of rows with differences, changes of their biases, ``(L, D)`` ratios and errors in levels.

        The errors are bounds. Only of rows whose ratio is typically known to half a level.
        """
        sums = self.with_differences(rows)
        bounds = self.bounds_with_differences()
        live = (sums[:, -1].abs() > bounds[:, -1]).nonzero().flatten()
        bias = sums[live, -1:]
        points = sums[live, :-1] / bias
        # Error of a quotient w / b: (|dw| + |w / b| |db|) / |b|.
        errors = LEVELS * (bounds[live, :-1] + points.abs() * bounds[live, -1:]) / bias.abs()
        is_clear = TYPICAL * errors.amax(1) < 0.5
        return live[is_clear], bias[is_clear, 0], points[is_clear], errors[is_clear]


def decomposed(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Thin singular value decomposition, also of matrices for which the fast algorithm does not converge."""
    try:
        left_vectors, values, right_vectors = torch.linalg.svd(matrix, full_matrices=False)
    except RuntimeError:
        from scipy.linalg import svd  # slow to import

        factors = svd(matrix.numpy(), full_matrices=False, lapack_driver="gesvd")
        left_vectors, values, right_vectors = map(torch.from_numpy, factors)
    return left_vectors, values, right_vectors


def _shown_rank(values: Tensor, records: int, *, floor: float) -> int:
    """Rank of rows with given singular values: at most the number of records, but for a sum that has more, and ends.

    Args:
        values: singular values, the largest first.
        records: number of records of the client.
        floor: singular value up to which one may be rounding.
    """
    visible = int((values > floor).sum())
    rank = min(records, visible)
    is_of_more = rank < visible < len(values) and not _ends(values, rank) and _ends(values, visible)
    return visible if is_of_more else rank


def _ends(values: Tensor, rank: int) -> bool:
    """Whether the singular values after the first `rank` are small."""
    return rank < len(values) and bool(values[rank] < GAP * values[rank - 1])
