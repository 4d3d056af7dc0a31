"""The linear map from the clicks of a client to its update, and its inversion for clicks between 0 and 1.

With the mean cross-entropy, T steps change the parameters by ``(lr / R) sum_t J_t^T (I - p_t)``, where J_t are the
gradients of the scores and p_t the probabilities before step t. Given the way, the update is affine in the clicks I
(RAIFLE, theorem 1 and appendix A, where T = 1). The way depends on the clicks, but little: its first and last point
are known, and what a way from other clicks lacks at its end is made up for evenly along it.

The map has as many rows as a ranker has parameters and as many columns as there are items, thousands of each: it is
used through products with it and its transpose only, for all clients at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protocol.pointwise_descent import Items, Outputs, Ranker, outputs, pull

_BLIND = 1e-6
"""Share of the mean column below which an item is taken not to change the update at all."""
_NOTHING = 1e-12
_WALL = 1e-5
"""Nearest that a click comes to a bound: float32 must tell it from the bound."""
_TO_THE_WALL = 0.9
"""Part of the distance to a bound that one step may go."""


@dataclass(frozen=True)
class ClickMap:
    """A linear map from clicks ``(V, R)`` to changes of rankers, and what honest clients add to it.

    Attributes:
        items: what was served.
        slopes: ``(V, R, H)`` mean over the way of what `Outputs` has.
        hidden: ``(V, R, H)`` likewise, None for a linear ranker.
        offset: what the map would give of the probabilities, were they clicks.
    """

    items: Items
    slopes: Tensor
    hidden: Tensor | None
    offset: Ranker

    def apply(self, clicks: Tensor) -> Ranker:
        """The map."""
        return pull(Outputs(clicks, self.slopes, self.hidden), self.items, clicks)

    def transpose(self, change: Ranker) -> Tensor:
        """``(V, R)`` the transposed map."""
        back = (self.items.forward(change.weight) * self.slopes).sum(-1)
        if self.hidden is None or change.output is None:
            return back
        return back + (self.hidden * change.output[:, None]).sum(-1)

    def squares(self) -> Tensor:
        """``(V, R)`` squared norms of the columns: by how much a click of an item changes the update."""
        own = self.items.norms * self.slopes.square().sum(-1)
        return own if self.hidden is None else own + self.hidden.square().sum(-1)


def click_map(way: Sequence[Ranker], items: Items) -> ClickMap:
    """The map along a way: the rankers before each step."""
    slopes, hidden, expected = torch.zeros(()), torch.zeros(()), None
    for ranker in way:
        found = outputs(ranker, items)
        slopes = slopes + found.slopes / len(way)
        hidden = hidden if found.hidden is None else hidden + found.hidden / len(way)
        step = pull(found, items, found.probabilities / len(way))
        expected = step if expected is None else expected.plus(step)
    assert expected is not None
    return ClickMap(items, slopes, None if expected.output is None else hidden, expected)


def bridged(way: Sequence[Ranker], change: Ranker) -> list[Ranker]:
    """A way that ends where the client's did.

    Args:
        way: rankers before each step and after the last, from other clicks than the client's.
        change: the client's update.

    Returns:
        The rankers before each step.
    """
    gap = way[0].plus(change).plus(way[-1], -1.0)
    steps = len(way) - 1
    return [ranker.plus(gap, step / steps) for step, ranker in enumerate(way[:-1])]


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
