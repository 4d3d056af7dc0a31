"""Clicks between 0 and 1 that a linear map takes nearest to what was received, all clients at once.

The map is used through products with it and its transpose only: it has as many rows as a ranker has parameters and as
many columns as there are items, thousands of each.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attacks.interactions.pointwise_descent import Ranker
from attacks.interactions.pointwise_map import ClickMap

_BLIND = 1e-6
"""Share of the mean column below which an item is taken not to change the update at all."""
_NOTHING = 1e-12
_WALL = 1e-5
"""Nearest that a click comes to a bound: float32 must tell it from the bound."""
_TO_THE_WALL = 0.9
"""Part of the distance to a bound that one step may go."""


def conjugate_gradients(product: Callable[[Tensor], Tensor], right: Tensor, *, iterations: int) -> Tensor:
    """Solves symmetric positive systems, one of each row (Hestenes and Stiefel 1952).

    Args:
        product: the matrices' products with ``(V, R)``.
        right: ``(V, R)`` right-hand sides.
        iterations: steps; few of them are a regularisation.
    """
    found = torch.zeros_like(right)
    rest, direction = right.clone(), right.clone()
    square = rest.square().sum(1)
    for _ in range(iterations):
        image = product(direction)
        length = square / (direction * image).sum(1).clamp(min=torch.finfo(right.dtype).tiny)
        found = found + length[:, None] * direction
        rest = rest - length[:, None] * image
        before, square = square, rest.square().sum(1)
        direction = rest + (square / before.clamp(min=torch.finfo(right.dtype).tiny))[:, None] * direction
    return found


def ridge(linear: ClickMap, received: Ranker, noise: Tensor, *, iterations: int) -> Tensor:
    """The linear estimate of least error where the update is noisy and a click is as likely as none.

    Args:
        linear: the map.
        received: what the map gives of the clicks, and noise.
        noise: ``(V,)`` standard deviation of the noise on each number.
        iterations: of conjugate gradients.

    Returns:
        ``(V, R)``.
    """
    half = torch.full(linear.slopes.shape[:2], 0.5).to(linear.slopes)
    penalty = (2 * noise).square()[:, None]
    scale = (linear.squares() + penalty).rsqrt()
    right = scale * linear.transpose(received.plus(linear.apply(half), -1.0))
    return half + scale * conjugate_gradients(_system(linear, scale, penalty), right, iterations=iterations)


def interior_point(linear: ClickMap, received: Ranker, *, barriers: int, iterations: int) -> Tensor:
    """The least-squares estimate within [0, 1], by Newton's method with a logarithmic barrier that is let down.

    Args:
        linear: the map.
        received: what the map gives of the clicks.
        barriers: Newton steps; the barrier falls from 0.1 to 0.0005 of the mean squared column.
        iterations: of conjugate gradients in each.

    Returns:
        ``(V, R)``, 0.5 for an item that changes nothing.
    """
    squares = linear.squares()
    # A ranker whose units are all off sends nothing; its mean column must not be zero.
    mean = squares.mean(1, keepdim=True).clamp(min=_NOTHING)
    clicks = torch.full_like(squares, 0.5)
    residual = received.plus(linear.apply(clicks), -1.0)
    for weight in torch.logspace(-1, -3.3, barriers).tolist():
        barrier = weight * mean
        inward = 1 / clicks - 1 / (1 - clicks)
        bend = barrier * (clicks.square().reciprocal() + (1 - clicks).square().reciprocal())
        scale = (squares.clamp(min=_BLIND * mean) + bend).rsqrt()
        right = scale * (linear.transpose(residual) + barrier * inward)
        step = scale * conjugate_gradients(_system(linear, scale, bend), right, iterations=iterations)
        lowest, highest = (1 - _TO_THE_WALL) * clicks, clicks + _TO_THE_WALL * (1 - clicks)
        clicks = (clicks + step).clamp(lowest, highest).clamp(_WALL, 1 - _WALL)
        residual = received.plus(linear.apply(clicks), -1.0)
    return clicks


def _system(linear: ClickMap, scale: Tensor, diagonal: Tensor) -> Callable[[Tensor], Tensor]:
    """The product with ``S (A^T A + D) S``, S and D diagonal."""
    return lambda u: scale * (linear.transpose(linear.apply(scale * u)) + diagonal * scale * u)
