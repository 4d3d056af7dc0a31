"""PRECODE: a variational bottleneck between the features of a network and its last layer.

References:
    D. Scheliga, P. Mäder and M. Seeland, "PRECODE - A Generic Model Extension to Prevent Deep Gradient Leakage", WACV
    2022, arXiv:2108.04725. Only its beginning could be read; encoder, decoder and the softplus are those of a public
    implementation.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedleak.client.nets.dropout import RandomLayer, spread

_HALF_STEP = 2.0**-25
"""Half the distance of two uniform numbers, which is added so that no logarithm is of zero."""


class Bottleneck(RandomLayer):
    """Variational bottleneck: features are encoded as a normal distribution, and a sample of it is decoded.

    ``m, s = encoder(features)``, ``z = m + softplus(s) e``, ``decoder(z)``; e is from N(0, 1), and 0 without draws. The
    loss has in addition `strength` times the divergence of N(m, softplus(s)^2) from N(0, 1), in nats.

    Args:
        features: number F of features.
        latent: length of z (published: 256).
        strength: weight of the divergence, >= 0 (published: 0.001).

    Attributes:
        penalty: ``(N,)`` weighted divergence of the last batch.
    """

    expectation = 0.0
    span = (-4.0, 4.0)
    penalty: Tensor | None

    def __init__(self, features: int, latent: int, strength: float) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(features, 2 * latent), nn.Linear(latent, features)
        self.latent, self.strength, self.penalty = latent, strength, None

    def noise_shape(self, features: Tensor) -> tuple[int, ...]:
        return (self.latent,)

    def forward(self, features: Tensor) -> Tensor:
        """``(N, F)`` -> the same shape."""
        mean, raw = self.encoder(features).chunk(2, dim=1)
        deviation = functional.softplus(raw)
        squares = mean.square() + deviation.square() - 1 - 2 * deviation.log()
        self.penalty = self.strength * squares.sum(1) / 2
        noise = self.noise
        if noise is None and self.draws is not None:
            first, second = spread(self.draws, (2, self.latent)).unbind(1)
            noise = (-2 * (first + _HALF_STEP).log()).sqrt() * torch.cos(2 * math.pi * second)
        decoded: Tensor = self.decoder(mean if noise is None else mean + deviation * noise)
        return decoded


def penalties(network: nn.Module) -> Tensor | float:
    """``(N,)`` sum of the penalties of the last batch, which the bottlenecks then forget; 0.0 without one."""
    total: Tensor | float = 0.0
    for layer in network.modules():
        if isinstance(layer, Bottleneck) and layer.penalty is not None:
            total, layer.penalty = total + layer.penalty, None
    return total
