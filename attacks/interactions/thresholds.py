"""Decisions without the truth."""

import torch
from torch import Tensor


def two_means(values: Tensor, mask: Tensor) -> Tensor:
    """Splits each row's values into the two groups of least squared spread, exactly (Otsu 1979; 2-means in 1-D).

    Args:
        values: ``(V, R)``.
        mask: ``(V, R)`` True for real values.

    Returns:
        ``(V, R)`` True for the upper group; all False where a row holds fewer than two different values.
    """
    ordered = values.double().masked_fill(~mask, torch.inf).sort(dim=1).values
    real = torch.isfinite(ordered)
    sums = ordered.masked_fill(~real, 0).cumsum(1)
    count = mask.sum(1, keepdim=True)
    lower = torch.arange(1, values.shape[1] + 1, device=values.device).expand_as(ordered)
    upper = (count - lower).clamp(min=0)
    gap = sums / lower - (sums[:, -1:] - sums) / upper.clamp(min=1)
    between = (lower * upper * gap**2).masked_fill(upper == 0, -1)
    threshold = ordered.gather(1, between.argmax(1, keepdim=True))
    return (values.double() > threshold) & mask
