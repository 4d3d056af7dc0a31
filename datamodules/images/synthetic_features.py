"""Synthetic features with the shape of a network's, without images; results on them say nothing about real data."""

import hashlib
from typing import Any, Literal

import torch
from torch import Tensor

from fedleak.datamodules.images.voters import Voters

WIDTHS = {"resnet18": 512, "regnet_y_800mf": 784, "densenet121": 1024, "mnasnet1_3": 1280}
"""Features of the networks in RAIFLE's table IV."""
Width = Literal["resnet18", "regnet_y_800mf", "densenet121", "mnasnet1_3"]
_SHIFT = 0.8
"""Added before the rectifier, in standard deviations: about a fifth of the features are 0."""
_DECAY = 0.5
"""Exponent with which the standard deviation falls from axis to axis."""


class SyntheticFeatures(Voters):
    """Users who vote on items with random features. Needs no files.

    Args:
        extractor: network that determines the number of features.
    """

    name = "synthetic-features"
    folders = (name,)

    def __init__(self, *, extractor: Width = "resnet18", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.extractor = extractor

    @property
    def num_features(self) -> int:
        return WIDTHS[self.extractor]

    @property
    def fingerprint(self) -> dict[str, str]:
        # The features follow from these numbers and the seeds of the server.
        description = f"{self.name} {self.extractor} {_SHIFT} {_DECAY}"
        digest = hashlib.sha256(description.encode())
        return {"name": self.name, "sha256": digest.hexdigest()}

    def draw(self, items: int, *, generator: torch.Generator) -> Tensor:
        """``(R, F)`` features like those of real images, see `natural_features`."""
        return natural_features(items, self.num_features, generator=generator)


def natural_features(items: int, features: int, *, generator: torch.Generator) -> Tensor:
    """``(R, F)`` correlated rectified features, like the input of a network's last layer.

    max(0, 0.8 + z), where z is Gaussian with unit variance and a covariance of spectrum 1/k along random axes. Their
    mean is 0.92, their standard deviation 0.82, and the cosine between two items 0.55.
    """
    # Random axes, along which the spread falls as k^-0.5; the mean variance is 1.
    axes = torch.linalg.qr(torch.randn(features, features, generator=generator)).Q
    spread = torch.arange(1, features + 1).float().pow(-_DECAY)
    spread = spread / spread.square().mean().sqrt()
    correlated = (torch.randn(items, features, generator=generator) * spread) @ axes.T
    rectified: Tensor = (correlated + _SHIFT).clamp(min=0)
    return rectified
