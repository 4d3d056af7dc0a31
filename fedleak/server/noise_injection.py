"""Noise in place of features."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from fedleak.core.ranges import PositiveFloat
from fedleak.defenses.manipulation_checks import Distribution, Entropy, ValueRange
from fedleak.server.deviation import Notice
from fedleak.server.feature_manipulation import FeatureManipulation, Model


@dataclass(frozen=True, kw_only=True)
class NoiseInjection(FeatureManipulation):
    """Gaussian noise in place of features.

    Args:
        scale: standard deviation of the noise (0.1 in section V.B.3).
        share_of_features: fraction of the features that are replaced, the same for all documents.
        share_of_real: weight of the real value in a replaced feature: 0 replaces it, 0.9 mixes in a tenth of noise.

    References:
        [Pham25], section III.C.2.
    """

    name = "noise"
    does = "replaces features, or mixes them, with Gaussian noise"
    noticed = (
        Notice(
            "client",
            "values outside the usual range, and another distribution of each column",
            (ValueRange, Distribution, Entropy),
        ),
    )
    references = ("Pham25, section III.C.2",)

    scale: PositiveFloat = 0.1
    share_of_features: float = 1.0
    share_of_real: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share_of_features <= 1:
            raise ValueError(f"expected share_of_features in (0, 1], got {self.share_of_features}")
        if not 0 <= self.share_of_real < 1:
            raise ValueError(f"expected share_of_real in [0, 1), got {self.share_of_real}")

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        noise = torch.randn(features.shape, generator=generator) * self.scale
        mixed = self.share_of_real * features + (1 - self.share_of_real) * noise
        # The same random features of all documents are replaced, one at least.
        width = features.shape[-1]
        count = max(1, round(self.share_of_features * width))
        is_replaced = torch.zeros(width, dtype=torch.bool)
        is_replaced[torch.randperm(width, generator=generator)[:count]] = True
        return torch.where(is_replaced, mixed, features) * mask[..., None]
