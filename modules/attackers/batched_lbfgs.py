"""L-BFGS on a batch of small problems, each with its own curvature and step length.

torch's L-BFGS solves one problem: for a sum over victims, one victim's bad step would shorten the steps of all.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from protocol.progress import counted

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Losses ``(B,)`` and gradients ``(B, N)`` at points ``(B, N)``."""
_SUFFICIENT = 1e-4
_HALVINGS = 12


def batched_lbfgs(
    objective: Objective,
    start: Tensor,
    *,
    max_iter: int,
    history: int = 10,
    tolerance: float = 1e-9,
    of: Callable[[Tensor], Objective] | None = None,
) -> tuple[Tensor, Tensor]:
    """Minimises every problem of a batch, from ``start (B, N)``; returns best points ``(B, N)`` and losses ``(B,)``.

    Args:
        objective: losses and gradients of all problems.
        start: initial points.
        max_iter: maximum number of iterations.
        history: number of curvature pairs.
        tolerance: stops when no loss decreases by more than this share of itself.
        of: objective of some problems only, for costly ones: a problem whose loss no longer decreases is then left out,
            and line searches evaluate only those that go on.

    References:
        Nocedal and Wright, "Numerical Optimization", 2006, algorithms 7.4 and 3.1.
    """
    point = start.clone()
    loss, gradient = objective(point)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    scale = torch.ones_like(loss) / gradient.abs().sum(1).clamp(min=1)
    working = torch.ones_like(loss, dtype=torch.bool)
    for _ in counted(range(max_iter)):
        direction = -_two_loops(gradient, pairs, scale)
        slope = (direction * gradient).sum(1)
        uphill = slope >= 0
        direction = torch.where(uphill[:, None], -gradient * scale[:, None], direction)
        slope = torch.where(uphill, -(gradient.square().sum(1) * scale), slope)
        moved, lower, changed = _descend(objective, of, point, loss, gradient, direction, slope, working)
        step, change = moved - point, changed - gradient
        product = (step * change).sum(1)
        curved = product > 1e-12 * step.norm(dim=1) * change.norm(dim=1)
        safe = product.where(curved, torch.ones_like(product))
        pairs.append((step * curved[:, None], change * curved[:, None], curved / safe))
        pairs = pairs[-history:]
        scale = torch.where(curved, safe / change.square().sum(1).clamp(min=1e-30), scale)
        stalled = loss - lower <= tolerance * loss
        point, loss, gradient = moved, lower, changed
        if of is not None:
            working = working & ~stalled
        if bool(stalled.all()):
            break
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


def _descend(
    objective: Objective,
    of: Callable[[Tensor], Objective] | None,
    point: Tensor,
    loss: Tensor,
    gradient: Tensor,
    direction: Tensor,
    slope: Tensor,
    working: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Backtracking line search: halves steps without sufficient decrease, at last to zero."""
    length = torch.ones_like(loss)
    best, lowest, slopes = point.clone(), loss.clone(), gradient.clone()
    still = working.clone()
    for _ in range(_HALVINGS):
        rows = torch.arange(len(loss), device=loss.device) if of is None else still.nonzero().flatten()
        trial = point[rows] + length[rows, None] * direction[rows]
        found, changed = objective(trial) if of is None else of(rows)(trial)
        enough = still[rows] & (found <= loss[rows] + _SUFFICIENT * length[rows] * slope[rows])
        done = rows[enough]
        best[done], lowest[done], slopes[done] = trial[enough], found[enough], changed[enough]
        still[done] = False
        if not bool(still.any()):
            break
        length = torch.where(still, length / 2, length)
    return best, lowest, slopes
