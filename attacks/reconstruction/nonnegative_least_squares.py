"""Least squares without negative weights, of many vectors that are given by scalar products."""

from collections.abc import Callable

import torch
from torch import Tensor

_RIDGE = 1e-13
"""Share of the mean squared length that keeps the system of nearly dependent rows solvable."""
_VIOLATED = 0.1
"""Share of the rounding below which a scalar product with what is left is 0."""
_MOST_PASSES = 80

_MOST_WORK = 10**11
"""Sum of the cubed numbers of chosen rows over all factorisations at which least squares stops: about a minute, where
values outside of the table's description, such as -99 for a missing one, fit no possible rows."""


def nonnegative_least_squares(
    products: Callable[[Tensor], Tensor],
    along: Tensor,
    squares: Tensor,
    *,
    floor: float,
    is_enough: Callable[[Tensor, Tensor], bool],
) -> tuple[Tensor, Tensor]:
    """Numbers ``(m,)`` of the vectors, of P, with positive weights in least squares, and the weights.

    Active sets as of Lawson and Hanson, where several vectors enter at once. The search ends after 80 passes or after
    a number of operations (`_MOST_WORK`), with the weights that it has then.

    Args:
        products: gives ``(P, m)`` scalar products of all vectors with those of the given numbers.
        along: ``(P,)`` scalar products with the target.
        squares: ``(P,)`` squared lengths.
        floor: length of the rounding of the target.
        is_enough: whether to stop at given vectors and weights.
    """
    lengths = squares.clamp(min=1e-300).sqrt()
    chosen = torch.zeros(0, dtype=torch.int64)
    weights = along.new_zeros(0)
    columns = along.new_zeros(len(along), 0)  # scalar products with the chosen
    limit = _VIOLATED * floor
    work = 0
    for _ in range(_MOST_PASSES):
        # Vectors with the largest scalar products with what is left enter, a quarter as many as there are.
        slope = (along - columns @ weights) / lengths
        slope[chosen] = 0
        best, entering = slope.topk(min(max(1, len(chosen) // 4), len(slope)))
        entering = entering[best > limit]
        if not len(entering):
            break
        chosen = torch.cat([chosen, entering])
        columns = torch.cat([columns, products(entering)], dim=1)
        weights = torch.cat([weights, along.new_zeros(len(entering))])
        while work < _MOST_WORK:
            work += len(chosen) ** 3
            solution = _least_squares(columns[chosen], along[chosen, None])
            if not bool((solution <= 0).any()):
                weights = solution
                break
            weights, stays = _towards(solution, weights)
            chosen = chosen[stays]
            weights = weights[stays]
            columns = columns[:, stays]
        if work >= _MOST_WORK or is_enough(chosen, weights):
            break
    return chosen, weights


def _towards(solution: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weights ``(m,)`` moved towards a solution until the first is 0, and which stay: all but those that are 0."""
    is_falling = solution <= 0
    falls = weights[is_falling] - solution[is_falling]
    share = (weights[is_falling] / falls.clamp(min=1e-300)).min().clamp(0, 1)
    moved = weights + share * (solution - weights)
    stays = ~(is_falling & (moved <= 1e-14 * moved.max()))
    if bool(stays.all()):
        stays[is_falling.nonzero()[0]] = False  # against rounding: one leaves at each step
    return moved, stays


def _least_squares(gram: Tensor, target: Tensor) -> Tensor:
    """``(m,)`` solution of the normal equations, with one step of refinement against the ridge and rounding."""
    regular = gram + _RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    factor = torch.linalg.cholesky_ex(regular).L
    solution = torch.cholesky_solve(target, factor)
    residual = target - gram @ solution
    return (solution + torch.cholesky_solve(residual, factor))[:, 0]
