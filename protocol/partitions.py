"""Targets for features that the client extracts itself: rectified noise in one part of them (RAIFLE, section IV.C)."""

import torch
from torch import Tensor


def partition_of(items: int, partitions: int) -> Tensor:
    """``(R,)`` the part in which each of a client's items has its noise: the first items in the first, and so on."""
    return torch.arange(items) * partitions // items


def partitioned_noise(
    part: Tensor, features: int, *, partitions: int, scale: float, generator: torch.Generator
) -> Tensor:
    """max(0, N(0, scale^2)) in one part of the features and zero in the others.

    Args:
        part: ``(R,)`` which part each item has.
        features: number F of features; the parts are as even as they go.
        partitions: number of parts; one for noise in all features.
        scale: standard deviation of the noise before it is cut at zero; the paper's grid search ended at 4.
        generator: source of the noise.

    Returns:
        ``(R, F)``.

    Raises:
        ValueError: there are more parts than features, or a number is not positive.
    """
    if not 1 <= partitions <= features or not scale > 0:
        raise ValueError(f"expected 1 to {features} partitions and scale > 0, got {partitions} and {scale}")
    noise = torch.randn(len(part), features, generator=generator).mul(scale).clamp(min=0)
    return noise * (partition_of(features, partitions) == part[:, None])
