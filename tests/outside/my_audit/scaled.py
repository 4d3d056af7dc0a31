"""A malicious server that sends scaled features."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.server import FeatureManipulation, Notice


@dataclass(frozen=True, kw_only=True)
class Scaled(FeatureManipulation):
    """All features times a factor.

    Args:
        factor: any number.
    """

    name = "scaled"
    does = "multiplies all features by a factor"
    noticed = (Notice("client", "values outside the usual range"),)

    factor: float = 2.0

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        return features * self.factor
