"""Features of images, drawn without images at the shape of a network's: they prove the machinery."""

import hashlib
from typing import Any, Literal

import torch
from torch import Tensor

from datamodules.images.voters import Voters

WIDTHS = {"resnet18": 512, "regnet_y_800mf": 784, "densenet121": 1024, "mnasnet1_3": 1280}
"""Features of the networks in RAIFLE's table IV."""
Width = Literal["resnet18", "regnet_y_800mf", "densenet121", "mnasnet1_3"]
_SHIFT = 0.8
_DECAY = 0.5


class SyntheticFeatures(Voters):
    """Users who vote on items of drawn features, without images; the other arguments are those of `Voters`.

    Args:
        extractor: network whose number of features is taken.
    """

    name = "synthetic-features"
    folders = (name,)

    def __init__(self, *, extractor: Width = "resnet18", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.extractor = extractor

    @property
    def num_features(self) -> int:
        """512 to 1,280."""
        return WIDTHS[self.extractor]

    @property
    def fingerprint(self) -> dict[str, str]:
        """Name and the sha256 of how features are drawn."""
        described = f"{self.name} {self.extractor} {_SHIFT} {_DECAY}"
        return {"name": self.name, "sha256": hashlib.sha256(described.encode()).hexdigest()}

    def draw(self, items: int, *, generator: torch.Generator) -> Tensor:
        """Features ``(R, F)`` as those of real images."""
        return natural_features(items, self.num_features, generator=generator)


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
