"""A malicious server that sends scaled features."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.manipulation import Manipulation


@dataclass(frozen=True, kw_only=True)
class Scaled(Manipulation):
    """All features times a factor.

    Args:
        factor: any number.
    """

    name = "scaled"

    factor: float = 2.0

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        return features * self.factor
