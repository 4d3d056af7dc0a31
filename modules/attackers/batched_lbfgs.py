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
"""Constants c1 and c2 of the strong Wolfe conditions, as torch's."""
_SEARCHES = 25
"""Largest number of trials of a line search, as torch's."""
_SMALLEST_GRADIENT, _SMALLEST_CHANGE = 1e-7, 1e-9
"""Largest entry of a gradient, and change of a loss or of the point, below which a problem stops, as torch's."""
_HISTORY = 100
"""Pairs of step and change of the gradient that describe the Hessian, as torch's."""
_CURVED = 1e-10
"""Product of step and change of the gradient above which a pair has curvature, as torch's."""
_LONGEST, _SHORTEST, _MARGIN = 10, 0.01, 0.1
"""A step is extended to ten times its length at most, by a hundredth of its last extension at least; within an interval
it keeps a tenth of the interval from both ends. All are torch's."""


@dataclass
class _Trial:
    """Points on the lines of a search: step lengths, losses and slopes ``(B,)``, gradients ``(B, N)``."""

    length: Tensor
    loss: Tensor
    slope: Tensor
    gradient: Tensor

    def taken(self, where: Tensor, trial: "_Trial") -> "_Trial":
        """The other points for the problems of ``where (B,)``."""
        return _Trial(
            torch.where(where, trial.length, self.length),
            torch.where(where, trial.loss, self.loss),
            torch.where(where, trial.slope, self.slope),
            torch.where(where[:, None], trial.gradient, self.gradient),
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
        [Nocedal06], algorithms 7.4, 3.5 and 3.6.
    """
    problems = torch.arange(len(start))
    point = start.clone()
    loss, gradient = objective(point, problems)
    alive = gradient.abs().amax(1) > _SMALLEST_GRADIENT
    evaluations = torch.ones_like(problems)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    direction = -gradient
    scale = torch.ones_like(loss)
    # The first step of gradient descent has a length of at most `learning_rate` in the L1 norm.
    length = (1 / gradient.abs().sum(1).clamp(min=1e-30)).clamp(max=1) * learning_rate
    for _ in with_progress(range(max_iter)):
        # A problem whose direction does not descend has converged.
        slope = (direction * gradient).sum(1)
        alive = alive & (slope <= -_SMALLEST_CHANGE)
        if not bool(alive.any()):
            break
        begin = _Trial(torch.zeros_like(loss), loss, slope, gradient)
        accepted, used = _strong_wolfe(objective, point, direction, begin, length, alive)
        step = torch.where(alive[:, None], accepted.length[:, None] * direction, 0.0)
        change = torch.where(alive[:, None], accepted.gradient - gradient, 0.0)
        flat = (accepted.loss - loss).abs() < _SMALLEST_CHANGE
        point = point + step
        loss = torch.where(alive, accepted.loss, loss)
        gradient = gradient + change
        evaluations = evaluations + used
        still = step.abs().amax(1) <= _SMALLEST_CHANGE
        alive &= ~(flat | still | (gradient.abs().amax(1) <= _SMALLEST_GRADIENT))
        most_evaluations = max_iter * 5 // 4 if max_eval is None else max_eval
        alive &= evaluations < most_evaluations
        # The pair (s, y) of step and change of the gradient, with 1 / <s, y>; without curvature it is zero.
        product = (step * change).sum(1)
        curved = product > _CURVED
        inverse = torch.where(curved, 1 / product.where(curved, torch.ones_like(product)), 0.0)
        pairs = [*pairs[-_HISTORY + 1 :], (step * curved[:, None], change * curved[:, None], inverse)]
        # The initial inverse Hessian is the identity times <s, y> / <y, y> of the newest pair.
        scale = torch.where(curved, product / change.square().sum(1).clamp(min=1e-30), scale)
        direction = -_two_loops(gradient, pairs, scale)
        length = torch.full_like(loss, learning_rate)
    return point, loss


def _two_loops(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]], scale: Tensor) -> Tensor:
    """Product of the inverse Hessian and the gradient; pairs without curvature are zero and have no effect."""
    # Algorithm 7.4: newest pair first, then the initial inverse Hessian, then oldest pair first.
    product = gradient.clone()
    weights = []
    for step, change, inverse in reversed(pairs):
        weight = inverse * (step * product).sum(1)
        product -= weight[:, None] * change
        weights.append(weight)
    product *= scale[:, None]
    for (step, change, inverse), weight in zip(pairs, reversed(weights), strict=True):
        product += (weight - inverse * (change * product).sum(1))[:, None] * step
    return product


def _strong_wolfe(
    objective: Objective, point: Tensor, direction: Tensor, begin: _Trial, length: Tensor, alive: Tensor
) -> tuple[_Trial, Tensor]:
    """Steps that satisfy the strong Wolfe conditions, and the number of evaluations ``(B,)`` of each problem.

    A problem first extends its step until an interval holds such a step, then shrinks the interval.
    """
    longest = direction.abs().amax(1)
    previous = begin
    low = begin
    high = begin
    new = begin
    shrinking = torch.zeros_like(alive)
    stalled = torch.zeros_like(alive)
    done = ~alive
    used = torch.zeros_like(alive, dtype=torch.int64)
    for search in range(_SEARCHES + 1):
        active = torch.nonzero(~done).flatten()
        if not len(active):
            break
        loss, gradient = objective((point + length[:, None] * direction)[active], active)
        new = _Trial(
            length=length,
            loss=new.loss.index_put((active,), loss),
            slope=new.slope,
            gradient=new.gradient.index_put((active,), gradient),
        )
        new.slope = (new.gradient * direction).sum(1)
        used[active] += 1
        # The conditions: the loss falls enough (else the step is steep), and the slope is nearly level.
        steep = new.loss > begin.loss + _SUFFICIENT * new.length * begin.slope
        level = new.slope.abs() <= -_CURVATURE * begin.slope
        # Shrinking intervals (algorithm 3.6): `low` is the best step so far, `high` the other end.
        inner = shrinking & ~done
        worse = inner & (steep | (new.loss >= low.loss))
        better = inner & ~worse
        crossed = better & ~level & (new.slope * (high.length - low.length) >= 0)
        high = high.taken(worse, new).taken(crossed, low)
        low = low.taken(better, new)
        # Extended steps (algorithm 3.5): until the loss rises or the slope turns, which brackets a minimum.
        outer = ~shrinking & ~done
        rising = outer & (steep | ((search > 1) & (new.loss >= previous.loss)))
        fits = outer & ~rising & level
        bracketed = rising | (outer & ~fits & (new.slope >= 0))
        low = low.taken(bracketed, previous).taken(fits, new)
        high = high.taken(bracketed, new)
        further = outer & ~fits & ~bracketed
        first = previous
        second = new
        previous = previous.taken(further, new)
        shrinking = shrinking | bracketed
        done = done | fits | (better & level)
        swapped = shrinking & (high.loss < low.loss)
        new_low = low.taken(swapped, high)
        new_high = high.taken(swapped, low)
        low = new_low
        high = new_high
        done |= shrinking & ((high.length - low.length).abs() * longest < _SMALLEST_CHANGE)
        beyond = _cubic_minimum(
            first,
            second,
            lowest=second.length + _SHORTEST * (second.length - first.length),
            highest=second.length * _LONGEST,
        )
        within, stalled = _within(low, high, shrinking, stalled)
        length = torch.where(shrinking, within, beyond)
    return low, used


def _within(low: _Trial, high: _Trial, shrinking: Tensor, stalled: Tensor) -> tuple[Tensor, Tensor]:
    """Next step length ``(B,)`` within the interval of each problem, and which problems were too close to an end.

    Args:
        low: best step so far.
        high: other end of the interval.
        shrinking: ``(B,)`` True for problems with an interval.
        stalled: ``(B,)`` True for problems whose last step was too close to an end.
    """
    left = torch.minimum(low.length, high.length)
    right = torch.maximum(low.length, high.length)
    minimum = _cubic_minimum(low, high, lowest=left, highest=right)
    # Too close to an end twice in a row, or at it, the trial moves to a tenth of the interval from that end.
    margin = _MARGIN * (right - left)
    edge = shrinking & (torch.minimum(right - minimum, minimum - left) < margin)
    moved = edge & (stalled | (minimum >= right) | (minimum <= left))
    nearer_right = (minimum - right).abs() < (minimum - left).abs()
    inside = torch.where(nearer_right, right - margin, left + margin)
    return torch.where(moved, inside, minimum), edge & ~moved


def _cubic_minimum(first_point: _Trial, second_point: _Trial, lowest: Tensor, highest: Tensor) -> Tensor:
    """Minimum of the cubic through two points and slopes, within bounds; their middle if it has none."""
    gap = second_point.length - first_point.length
    safe = torch.where(gap == 0, 1.0, gap)
    # Nocedal and Wright, equation 3.59: x2 - (x2 - x1) (g2 + d2 - d1) / (g2 - g1 + 2 d2).
    slope1 = first_point.slope
    slope2 = second_point.slope
    d1 = slope1 + slope2 - 3 * (first_point.loss - second_point.loss) / -safe
    sign = torch.where(gap >= 0, 1.0, -1.0)
    d2 = (d1.square() - slope1 * slope2).clamp(min=0).sqrt() * sign
    minimum = second_point.length - gap * ((slope2 + d2 - d1) / (slope2 - slope1 + 2 * d2))
    exists = (d1.square() >= slope1 * slope2) & minimum.isfinite() & (gap != 0)
    return torch.where(exists, minimum, (lowest + highest) / 2).clamp(min=lowest, max=highest)
