"""PRECODE: a variational bottleneck between the features of a network and its last layer.

References:
    [Scheliga22b]. Only its beginning could be read; encoder, decoder and the softplus are those of a public
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
        self.encoder = nn.Linear(features, 2 * latent)
        self.decoder = nn.Linear(latent, features)
        self.latent = latent
        self.strength = strength
        self.penalty = None

    def noise_shape(self, features: Tensor) -> tuple[int, ...]:
        return (self.latent,)

    def forward(self, features: Tensor) -> Tensor:
        """``(N, F)`` -> the same shape."""
        mean, raw = self.encoder(features).chunk(2, dim=1)
        deviation = functional.softplus(raw)
        # KL(N(m, s^2) || N(0, 1)) = (m^2 + s^2 - 1 - log s^2) / 2 for each number of z.
        divergence_terms = mean.square() + deviation.square() - 1 - 2 * deviation.log()
        self.penalty = self.strength * divergence_terms.sum(1) / 2
        noise = self.noise
        if noise is None and self.draws is not None:
            # Box-Muller: sqrt(-2 log u1) cos(2 pi u2) is normal for uniform u1 and u2.
            radius_draw, angle_draw = spread(self.draws, (2, self.latent)).unbind(1)
            noise = (-2 * (radius_draw + _HALF_STEP).log()).sqrt() * torch.cos(2 * math.pi * angle_draw)
        latent = mean
        if noise is not None:
            latent = mean + deviation * noise
        decoded: Tensor = self.decoder(latent)
        return decoded


def penalties(network: nn.Module) -> Tensor | float:
    """``(N,)`` sum of the penalties of the last batch, which the bottlenecks then forget; 0.0 without one."""
    total: Tensor | float = 0.0
    for layer in network.modules():
        if isinstance(layer, Bottleneck) and layer.penalty is not None:
            total = total + layer.penalty
            layer.penalty = None
    return total
