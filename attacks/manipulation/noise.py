"""Noise injection, and its milder forms."""

from collections.abc import Mapping

import torch
from torch import Tensor

from attacks.manipulation.base import Manipulation


class NoiseInjection(Manipulation):
    """Replaces features by Gaussian noise (RAIFLE, sections III.C.2 and V.B.3: all of them, scale 0.1).

    Args:
        scale: standard deviation of the noise.
        share_of_features: fraction of the features that are replaced, the same for all documents.
        share_of_real: weight of the real value in a replaced feature: 0 replaces it, 0.9 hides a tenth of noise in it.
    """

    name = "noise"

    def __init__(self, *, scale: float = 0.1, share_of_features: float = 1.0, share_of_real: float = 0.0) -> None:
        if not scale > 0:
            raise ValueError(f"expected scale > 0, got {scale}; the paper uses 0.1")
        if not 0 < share_of_features <= 1:
            raise ValueError(f"expected share_of_features in (0, 1], got {share_of_features}")
        if not 0 <= share_of_real < 1:
            raise ValueError(f"expected share_of_real in [0, 1), got {share_of_real}")
        self.scale = scale
        self.share_of_features = share_of_features
        self.share_of_real = share_of_real

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        """See `Manipulation.features`."""
        noise = torch.randn(features.shape, generator=generator) * self.scale
        mixed = self.share_of_real * features + (1 - self.share_of_real) * noise
        count = max(1, round(self.share_of_features * features.shape[-1]))
        replaced = torch.zeros(features.shape[-1], dtype=torch.bool)
        replaced[torch.randperm(features.shape[-1], generator=generator)[:count]] = True
        return torch.where(replaced, mixed, features) * mask[..., None]
