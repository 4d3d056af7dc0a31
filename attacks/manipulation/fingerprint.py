"""Fingerprinting: features that only chosen documents have (RAIFLE, section III.C.1)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from attacks.manipulation.base import Manipulation


class Fingerprint(Manipulation):
    """Gives each document of a client features of its own and sets all others to zero.

    The features are dealt out over the client's documents; where there are fewer features than documents, documents
    share one and can be told apart no longer.

    Args:
        value: the value of a document's own features.
    """

    name = "fingerprint"

    def __init__(self, *, value: float = 1.0) -> None:
        if value == 0:
            raise ValueError("expected a value other than 0, got 0: then no document could be told from another")
        self.value = value

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        """See `Manipulation.features`."""
        width = features.shape[-1]
        number = (mask.flatten(1).cumsum(1) - 1).reshape(mask.shape)[..., None]
        documents = mask.flatten(1).sum(1).clamp(min=1).reshape(-1, 1, 1, 1)
        column = torch.arange(width)
        dealt = torch.where(documents <= width, column % documents == number, column == number % width)
        return dealt * self.value * mask[..., None]
