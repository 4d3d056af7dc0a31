"""L-BFGS on a batch of small problems: torch's algorithm, for every problem by itself.

torch's L-BFGS solves one problem: for a sum over victims, one victim's bad step would shorten the steps of all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.progress import with_progress

Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Losses ``(A,)`` and gradients ``(A, N)`` at points ``(A, N)`` of the problems with numbers ``(A,)``."""
_SUFFICIENT, _CURVATURE = 1e-4, 0.9
_SEARCHES = 25
_SMALLEST_GRADIENT, _SMALLEST_CHANGE = 1e-7, 1e-9
_HISTORY = 100


@dataclass
class _Trial:
    """Points on the lines of a search: step lengths, losses and slopes ``(B,)``, gradients ``(B, N)``."""

    length: Tensor
    loss: Tensor
    slope: Tensor
    gradient: Tensor

    def taken(self, where: Tensor, other: "_Trial") -> "_Trial":
        """The other points for the problems of ``where (B,)``."""
        return _Trial(
            torch.where(where, other.length, self.length),
            torch.where(where, other.loss, self.loss),
            torch.where(where, other.slope, self.slope),
            torch.where(where[:, None], other.gradient, self.gradient),
        )


def batched_lbfgs(
    objective: Objective, start: Tensor, *, max_iter: int, max_eval: int | None = None, learning_rate: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Minimises every problem of a batch from ``start (B, N)``; returns points ``(B, N)`` and losses ``(B,)``.

    Each problem takes the steps of ``torch.optim.LBFGS`` with a strong Wolfe line search, and stops by its criteria
    with the default tolerances.

    Args:
        objective: losses and gradients of some of the problems.
        start: initial points.
        max_iter: maximum number of iterations.
        max_eval: no search begins after so many evaluations; None for 1.25 times `max_iter`.
        learning_rate: first step length of every line search.

    References:
        Nocedal and Wright, "Numerical Optimization", 2006, algorithms 7.4, 3.5 and 3.6.
    """
    problems = torch.arange(len(start))
    point = start.clone()
    loss, gradient = objective(point, problems)
    alive = gradient.abs().amax(1) > _SMALLEST_GRADIENT
    evaluations = torch.ones_like(problems)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    direction, scale = -gradient, torch.ones_like(loss)
    length = (1 / gradient.abs().sum(1).clamp(min=1e-30)).clamp(max=1) * learning_rate
    for _ in with_progress(range(max_iter)):
        slope = (direction * gradient).sum(1)
        alive = alive & (slope <= -_SMALLEST_CHANGE)
        if not bool(alive.any()):
            break
        begin = _Trial(torch.zeros_like(loss), loss, slope, gradient)
        found, used = _strong_wolfe(objective, point, direction, begin, length, alive)
        step = torch.where(alive[:, None], found.length[:, None] * direction, 0.0)
        change = torch.where(alive[:, None], found.gradient - gradient, 0.0)
        flat = (found.loss - loss).abs() < _SMALLEST_CHANGE
        point, loss = point + step, torch.where(alive, found.loss, loss)
        gradient, evaluations = gradient + change, evaluations + used
        still = step.abs().amax(1) <= _SMALLEST_CHANGE
        alive &= ~(flat | still | (gradient.abs().amax(1) <= _SMALLEST_GRADIENT))
        alive &= evaluations < (max_iter * 5 // 4 if max_eval is None else max_eval)
        product = (step * change).sum(1)
        curved = product > 1e-10
        inverse = torch.where(curved, 1 / product.where(curved, torch.ones_like(product)), 0.0)
        pairs = [*pairs[-_HISTORY + 1 :], (step * curved[:, None], change * curved[:, None], inverse)]
        scale = torch.where(curved, product / change.square().sum(1).clamp(min=1e-30), scale)
        direction = -_two_loops(gradient, pairs, scale)
        length = torch.full_like(loss, learning_rate)
    return point, loss


def _two_loops(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]], scale: Tensor) -> Tensor:
    """Product of the inverse Hessian and the gradient; pairs without curvature are zero and have no effect."""
    found = gradient.clone()
    weights = []
    for step, change, inverse in reversed(pairs):
        weight = inverse * (step * found).sum(1)
        found -= weight[:, None] * change
        weights.append(weight)
    found *= scale[:, None]
    for (step, change, inverse), weight in zip(pairs, reversed(weights), strict=True):
        found += (weight - inverse * (change * found).sum(1))[:, None] * step
    return found


def _strong_wolfe(
    objective: Objective, point: Tensor, direction: Tensor, begin: _Trial, length: Tensor, alive: Tensor
) -> tuple[_Trial, Tensor]:
    """Steps that satisfy the strong Wolfe conditions, and the number of evaluations ``(B,)`` of each problem.

    A problem first extends its step until an interval holds such a step, then shrinks the interval.
    """
    longest = direction.abs().amax(1)
    previous, low, high, new = begin, begin, begin, begin
    shrinking, stalled = torch.zeros_like(alive), torch.zeros_like(alive)
    done, used = ~alive, torch.zeros_like(alive, dtype=torch.int64)
    for search in range(_SEARCHES + 1):
        active = torch.nonzero(~done).flatten()
        if not len(active):
            break
        loss, gradient = objective((point + length[:, None] * direction)[active], active)
        new = _Trial(
            length, new.loss.index_put((active,), loss), new.slope, new.gradient.index_put((active,), gradient)
        )
        new.slope = (new.gradient * direction).sum(1)
        used[active] += 1
        steep = new.loss > begin.loss + _SUFFICIENT * new.length * begin.slope
        level = new.slope.abs() <= -_CURVATURE * begin.slope
        # Shrinking intervals.
        inner = shrinking & ~done
        worse = inner & (steep | (new.loss >= low.loss))
        better = inner & ~worse
        crossed = better & ~level & (new.slope * (high.length - low.length) >= 0)
        high = high.taken(worse, new).taken(crossed, low)
        low = low.taken(better, new)
        # Extended steps.
        outer = ~shrinking & ~done
        rising = outer & (steep | ((search > 1) & (new.loss >= previous.loss)))
        fits = outer & ~rising & level
        bracketed = rising | (outer & ~fits & (new.slope >= 0))
        low = low.taken(bracketed, previous).taken(fits, new)
        high = high.taken(bracketed, new)
        further = outer & ~fits & ~bracketed
        first, second = previous, new
        previous = previous.taken(further, new)
        shrinking, done = shrinking | bracketed, done | fits | (better & level)
        swapped = shrinking & (high.loss < low.loss)
        low, high = low.taken(swapped, high), high.taken(swapped, low)
        # The next trial.
        done |= shrinking & ((high.length - low.length).abs() * longest < _SMALLEST_CHANGE)
        beyond = _cubic_minimum(
            first, second, second.length + 0.01 * (second.length - first.length), second.length * 10
        )
        left, right = torch.minimum(low.length, high.length), torch.maximum(low.length, high.length)
        within, margin = _cubic_minimum(low, high, left, right), 0.1 * (right - left)
        edge = shrinking & (torch.minimum(right - within, within - left) < margin)
        moved = edge & (stalled | (within >= right) | (within <= left))
        inside = torch.where((within - right).abs() < (within - left).abs(), right - margin, left + margin)
        stalled = edge & ~moved
        length = torch.where(shrinking, torch.where(moved, inside, within), beyond)
    return low, used


def _cubic_minimum(one: _Trial, two: _Trial, lowest: Tensor, highest: Tensor) -> Tensor:
    """Minimum of the cubic through two points and slopes, within bounds; their middle if it has none."""
    gap = two.length - one.length
    safe = torch.where(gap == 0, 1.0, gap)
    first = one.slope + two.slope - 3 * (one.loss - two.loss) / -safe
    root = (first.square() - one.slope * two.slope).clamp(min=0).sqrt() * torch.where(gap >= 0, 1.0, -1.0)
    found = two.length - gap * ((two.slope + root - first) / (two.slope - one.slope + 2 * root))
    has = (first.square() >= one.slope * two.slope) & found.isfinite() & (gap != 0)
    return torch.where(has, found, (lowest + highest) / 2).clamp(min=lowest, max=highest)
