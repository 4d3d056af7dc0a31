"""Targets for features that the client extracts itself: rectified noise in one part of them (RAIFLE, section IV.C)."""

import torch
from torch import Tensor


def partition_of(items: int, partitions: int) -> Tensor:
    """``(R,)`` part with the noise of each of a client's items: the first items have the first part, and so on."""
    return torch.arange(items) * partitions // items


def partitioned_noise(
    part: Tensor, features: int, *, partitions: int, scale: float, generator: torch.Generator
) -> Tensor:
    """``(R, F)`` max(0, N(0, scale^2)) in one part of the features and zero in the others.

    Args:
        part: ``(R,)`` part of each item.
        features: number of features F, divided evenly into parts.
        partitions: number of parts; 1 for noise in all features.
        scale: standard deviation of the noise; 4 is the end of the paper's grid search.
        generator: source of the noise.

    Raises:
        ValueError: there are more parts than features, or a number is not positive.
    """
    if not 1 <= partitions <= features or not scale > 0:
        raise ValueError(f"expected 1 to {features} partitions and scale > 0, got {partitions} and {scale}")
    noise = torch.randn(len(part), features, generator=generator).mul(scale).clamp(min=0)
    return noise * (partition_of(features, partitions) == part[:, None])
