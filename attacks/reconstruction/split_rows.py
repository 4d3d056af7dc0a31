"""What an update changes by if rows of a table split to both sides of what they are."""

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.peeled_rows import DistinctRows, RowChanges


def copies_apart(distinct: DistinctRows, number: int, changes: RowChanges) -> float:
    """Least change of the update over the rate where two copies of a row go to different sides of it."""
    values = distinct.values[number]
    label = int(distinct.classes[number])
    steps = _level_steps(changes)
    if not len(steps):
        return float("inf")

    def changed_by(moved: Tensor) -> Tensor:
        return changes.biases(moved)[:, label, :, None] * changes.points(moved)[:, None, :]

    # The second difference. Levels beyond the range are no rows, but their changes are near those of rows.
    difference = changed_by(values + steps) + changed_by(values - steps) - 2 * changed_by(values[None])
    return float(difference.flatten(1).norm(dim=1).min())


def further_direction(distinct: DistinctRows, number: int, changes: RowChanges) -> float:
    """Least singular value that two rows on both sides of a row, in place of it, add to the update over the rate.

    The rows of the update span as many dimensions as it has rows, unless their changes of the bias are dependent. If
    they are so to rounding, of two rows only a mean is seen, which may be a possible row.
    """
    steps = _level_steps(changes)
    if not len(steps):
        return float("inf")
    points, biases = distinct.changed_by(changes)
    is_other = torch.arange(len(points)) != number
    values = distinct.values[number]
    label = int(distinct.classes[number])
    least = float("inf")
    for step in steps:
        pair = torch.stack([values + step, values - step])
        all_points = torch.cat([points[is_other], changes.points(pair)])
        all_biases = torch.cat([biases[is_other], changes.biases(pair)[:, label]])
        if len(all_points) > min(all_points.shape[1], all_biases.shape[1]):
            return 0.0
        # The singular values of a product of matrices are those of the product of their triangular factors.
        of_biases = torch.linalg.qr(all_biases.T, mode="r")[1]
        of_points = torch.linalg.qr(all_points.T, mode="r")[1]
        least = min(least, float(torch.linalg.svdvals(of_biases @ of_points.T)[-1]))
    return least


def _level_steps(changes: RowChanges) -> Tensor:
    """``(S, C)`` steps of one level of one number, or of two numbers, up or down."""
    column_count = len(changes.columns.sizes)
    numbers = (~changes.columns.is_category).nonzero().flatten().tolist()
    steps = list[Tensor]()
    for index, first in enumerate(numbers):
        for second in numbers[: index + 1]:
            # Of one number one step, which is counted for both sides; of two the same way, or one up and one down.
            signs = (0,) if second == first else (-1, 1)
            for sign in signs:
                step = torch.zeros(column_count, dtype=torch.int64)
                step[first] += 1
                step[second] += sign
                steps.append(step)
    return torch.stack(steps) if steps else torch.zeros(0, column_count, dtype=torch.int64)
