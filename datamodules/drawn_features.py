"""Features of images, drawn without images at the shape of a network's: they prove the machinery."""

import torch
from torch import Tensor

from protocol.partitions import partition_of, partitioned_noise

WIDTHS = {"resnet18": 512, "regnet_y_800mf": 784, "densenet121": 1024, "mnasnet1_3": 1280}
"""Features of the networks in RAIFLE's table IV."""
_SHIFT = 0.8
_DECAY = 0.5


def natural_features(items: int, features: int, *, generator: torch.Generator) -> Tensor:
    """Correlated rectified features ``(R, F)``, as a network has them before its last layer.

    max(0, 0.8 + z), where z is Gaussian of unit variance whose covariance has the spectrum 1/k along random axes: mean
    .92, standard deviation .82, and a cosine of .55 between two items.

    Args:
        items: number R of items.
        features: number F of features.
        generator: of the axes and the items.
    """
    axes = torch.linalg.qr(torch.randn(features, features, generator=generator)).Q
    spread = torch.arange(1, features + 1).float().pow(-_DECAY)
    spread = spread / spread.square().mean().sqrt()
    drawn = (torch.randn(items, features, generator=generator) * spread) @ axes.T
    rectified: Tensor = (drawn + _SHIFT).clamp(min=0)
    return rectified


def noise_features(items: int, features: int, *, partitions: int, scale: float, generator: torch.Generator) -> Tensor:
    """Features ``(R, F)`` that are exactly what an indirect manipulation aims at; see `partitioned_noise`."""
    part = partition_of(items, partitions)
    return partitioned_noise(part, features, partitions=partitions, scale=scale, generator=generator)
