"""Clients that tag photographs (CNN-PIPA-FL and CNN-OI-FL).

References:
    Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks: Understanding and Controlling Deanonymization in Federated
    Learning", 2018, arXiv:1805.05838, section 5.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from client.algorithm import Shapes
from client.nets.tagger import Tagger, TaggerOptions
from client.network import NetworkAlgorithm
from protocol.errors import require
from protocol.ranges import PositiveInt


def multilabel_loss(logits: Tensor, labels: Tensor, *, reduction: str) -> Tensor:
    """Binary cross-entropies ``(N, K)`` of the labels."""
    return functional.binary_cross_entropy_with_logits(logits, labels.float(), reduction=reduction)


@dataclass(frozen=True, kw_only=True)
class TaggerAlgorithm(NetworkAlgorithm):
    """Clients that learn the labels of uint8 images.

    Attributes:
        network: options of the network.
        num_classes: number of labels.
    """

    name: ClassVar[str] = "tagger"

    network: TaggerOptions
    num_classes: PositiveInt

    def __post_init__(self) -> None:
        require(
            self.network.weights is None,
            "no file of weights, because the rounds of a recording contain them",
            self.network.weights,
            "Set network.weights to null.",
        )

    @property
    def criterion(self) -> Callable[..., Tensor]:
        return multilabel_loss

    def network_shapes(self, held: Shapes) -> dict[str, tuple[int, ...]]:
        with torch.device("meta"):
            made = Tagger(self.network, labels=self.num_classes, generator=None)
        return {name: tuple(value.shape) for name, value in made.named_parameters()}

    @functools.cached_property
    def template(self) -> nn.Module:
        return Tagger(self.network, labels=self.num_classes, generator=torch.Generator())
