"""L-BFGS on many small problems at once, each with its own curvature and its own length of step.

torch's L-BFGS sees one problem: on a sum over victims, one victim's bad step shortens everybody's.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from protocol.progress import counted

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Losses ``(B,)`` and their gradients ``(B, N)`` at points ``(B, N)``."""
_SUFFICIENT = 1e-4
_HALVINGS = 12


def batched_lbfgs(
    objective: Objective, start: Tensor, *, max_iter: int, history: int = 10, tolerance: float = 1e-9
) -> tuple[Tensor, Tensor]:
    """Minimises every row of a batch of problems (Nocedal and Wright, algorithms 7.4 and 3.1).

    Args:
        objective: losses and gradients of all problems.
        start: ``(B, N)`` first points.
        max_iter: iterations.
        history: pairs of steps and changes of the gradient that make up the curvature.
        tolerance: ends when no loss has fallen by this share of itself.

    Returns:
        Best points ``(B, N)`` and their losses ``(B,)``.
    """
    point = start.clone()
    loss, gradient = objective(point)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    scale = torch.ones_like(loss) / gradient.abs().sum(1).clamp(min=1)
    for _ in counted(range(max_iter)):
        direction = -_two_loops(gradient, pairs, scale)
        slope = (direction * gradient).sum(1)
        uphill = slope >= 0
        direction = torch.where(uphill[:, None], -gradient * scale[:, None], direction)
        slope = torch.where(uphill, -(gradient.square().sum(1) * scale), slope)
        moved, lower, changed = _descend(objective, point, loss, gradient, direction, slope)
        step, change = moved - point, changed - gradient
        product = (step * change).sum(1)
        curved = product > 1e-12 * step.norm(dim=1) * change.norm(dim=1)
        safe = product.where(curved, torch.ones_like(product))
        pairs.append((step * curved[:, None], change * curved[:, None], curved / safe))
        pairs = pairs[-history:]
        scale = torch.where(curved, safe / change.square().sum(1).clamp(min=1e-30), scale)
        stalled = loss - lower <= tolerance * loss
        point, loss, gradient = moved, lower, changed
        if bool(stalled.all()):
            break
    return point, loss


def _two_loops(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]], scale: Tensor) -> Tensor:
    """The inverse Hessian's product with the gradient; a pair without curvature is zero and does nothing."""
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
    objective: Objective, point: Tensor, loss: Tensor, gradient: Tensor, direction: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Halves the step of every problem that has not fallen enough; who never does stays where it is."""
    length = torch.ones_like(loss)
    best, lowest, slopes = point.clone(), loss.clone(), gradient.clone()
    open_problems = torch.ones_like(loss, dtype=torch.bool)
    for _ in range(_HALVINGS):
        trial = point + length[:, None] * direction
        found, changed = objective(trial)
        enough = open_problems & (found <= loss + _SUFFICIENT * length * slope)
        best = torch.where(enough[:, None], trial, best)
        lowest = torch.where(enough, found, lowest)
        slopes = torch.where(enough[:, None], changed, slopes)
        open_problems &= ~enough
        if not bool(open_problems.any()):
            break
        length = torch.where(open_problems, length / 2, length)
    return best, lowest, slopes
