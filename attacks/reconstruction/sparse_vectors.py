"""Vectors of a span without negative numbers and with far more zeros than the span has dimensions."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_REWEIGHTINGS = 8
"""Linear programs from one random start."""
_WEIGHT = 1e-2
"""Share of the mean number that is added to a number before it is inverted: zeros get a weight 100 times the mean's."""
_ZERO = 1e-5
"""Share of the mean number below which a number is zero; the programs are solved to about 1e-7."""
_SLACK = 1e-7
"""How far below zero a number may be, in parts of the mean number, for rounding."""
_DEAD = 1e-6
"""Length, as a share of the largest, of the numbers that no vector of the span has: they tell none from another."""
_MORE = 1.5
"""Times as many zeros as dimensions from which a vector is sparse: any vertex has one zero for each dimension."""


def sparse_vector(
    vectors: Tensor, total: Tensor, *, generator: torch.Generator, away: Tensor | None = None
) -> Tensor | None:
    """``(R,)`` coordinates of a sparse vector without negative numbers, or None where the search ends at another.

    The vectors ``a`` with ``vectors @ a >= 0`` and ``total @ a = 1`` are a polytope, at whose vertices R - 1 numbers
    are zero. A vector with many more zeros is a vertex too, and a minimum of the concave function ``sum_m log(v_m +
    w)``, which linear programs with the weights ``1 / (v_m + w)`` of the last solution descend, from the vertex of
    random costs.

    Args:
        vectors: ``(M, R)`` numbers of each vector of a basis.
        total: ``(R,)`` what fixes the scale.
        generator: of the costs.
        away: ``(F, R)`` coordinates of vectors that are known, from which random costs do not lead to; None for none.

    References:
        [Candes08], section 2, for the weights.
    """
    from scipy.optimize import linprog  # slow to import

    lengths = vectors.norm(dim=1)
    vectors = vectors[lengths > _DEAD * lengths.max()]
    matrix: npt.NDArray[np.float64] = vectors.numpy()
    costs: npt.NDArray[np.float64] = _random_costs(vectors.shape[1], away, generator).numpy()
    tolerance = _SLACK * float(np.abs(matrix).mean())
    solution: npt.NDArray[np.float64] | None = None
    for _ in range(_REWEIGHTINGS):
        program = linprog(
            costs,
            A_ub=-matrix,
            b_ub=np.full(len(matrix), tolerance),
            A_eq=total.numpy()[None],
            b_eq=[1.0],
            bounds=(None, None),
            method="highs",
        )
        # No vector of the span is without negative numbers, or costs fall for ever.
        if program.status != 0 or program.x is None:
            return None
        solution = program.x
        numbers = np.maximum(matrix @ program.x, 0)
        mean = float(numbers.mean())
        zeros = numbers < _ZERO * mean
        if int(zeros.sum()) > max(_MORE * vectors.shape[1], vectors.shape[1] + 1):
            return _exact(vectors, torch.from_numpy(zeros), torch.from_numpy(program.x))
        costs = (1 / (numbers + _WEIGHT * mean)) @ matrix
        costs /= np.linalg.norm(costs)
    # Of one dimension, any vector is the only one.
    if vectors.shape[1] == 1 and solution is not None:
        return torch.from_numpy(solution)
    return None


def _random_costs(rank: int, away: Tensor | None, generator: torch.Generator) -> Tensor:
    costs = torch.randn(rank, generator=generator, dtype=torch.float64)
    if away is None or not len(away):
        return costs
    # What is orthogonal to the known vectors is 0 at each of them, and below 0 at some other.
    basis: Tensor = torch.linalg.qr(away.T)[0]
    return costs - basis @ (basis.T @ costs)


def _exact(vectors: Tensor, zeros: Tensor, near: Tensor) -> Tensor:
    """The coordinates that are zero exactly at ``zeros (M,)``: the direction of the smallest singular value there."""
    direction: Tensor = torch.linalg.svd(vectors[zeros], full_matrices=True)[2][-1]
    return direction * torch.sign(direction @ near)
