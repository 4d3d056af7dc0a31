"""Random layers, such as dropout, with numbers that come with the examples, without a global random state.

References:
    [Srivastava14].
    [Steele14] (`mixed`).
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

# Finaliser of splitmix64, as signed numbers.
_STEPS = ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1))
_STRIDE = -0x61C8864680B583EB
"""Increment of splitmix64 between two words: 2^64 over the golden ratio, as a signed number."""
_BITS = 24
"""Bits of a uniform number, as many as a float32 holds exactly."""
NOISE = "noise/"
"""Start of the names of fields of examples that are the random numbers of a layer."""


class RandomLayer(nn.Module):
    """Layer whose random numbers come with the examples; it uses their expectation while there are none.

    Attributes:
        draws: ``(N,)`` int64 numbers from which its random numbers are computed, or None.
        noise: its random numbers themselves, ``(N, ...)`` of the shape `noise_shape`, or None; they go before `draws`.
        expectation: expectation of a random number.
        span: the smallest and the largest that an attacker needs to consider.
    """

    draws: Tensor | None = None
    noise: Tensor | None = None
    expectation: float
    span: tuple[float, float]

    @property
    def active(self) -> bool:
        """Whether it is random."""
        return True

    def noise_shape(self, features: Tensor) -> tuple[int, ...]:
        """Shape of the random numbers of one example, for its input ``(N, ...)``."""
        return tuple(features.shape[1:])


class Dropout(RandomLayer):
    """Dropout of features, with the others scaled up; its random numbers are the factors.

    Args:
        probability: probability of a zero, below 1.
    """

    expectation = 1.0

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.span = (0.0, 1 / (1 - probability))

    @property
    def active(self) -> bool:
        return self.probability > 0

    def forward(self, features: Tensor) -> Tensor:
        """``(N, ...)`` -> the same shape."""
        if self.noise is not None:
            return features * self.noise
        if self.draws is None or self.probability == 0:
            return features
        survives = spread(self.draws, features.shape[1:]) >= self.probability
        return features * (survives / (1 - self.probability))


def spread(draws: Tensor, shape: Sequence[int]) -> Tensor:
    """``(N, *shape)`` pseudorandom numbers in [0, 1), a function of ``draws (N,)``."""
    counters = torch.arange(math.prod(shape), device=draws.device).reshape(tuple(shape))
    # Number k of an example is the hash of its draw plus k + 1 strides, as splitmix64 counts.
    return uniform(draws.reshape(-1, *[1] * counters.dim()) + _STRIDE * (counters + 1))


def uniform(draws: Tensor) -> Tensor:
    """Pseudorandom numbers in [0, 1) as a hash of int64 numbers."""
    numbers: Tensor = (mixed(draws) & (2**_BITS - 1)).float() / 2**_BITS
    return numbers


def mixed(words: Tensor) -> Tensor:
    """Bijective hash of 64-bit words; every bit of the result depends on every bit of the word."""
    for shift, factor in _STEPS:
        # The mask makes the shift of a signed number logical: it fills with zeros, not with the sign.
        words = (words ^ ((words >> shift) & (2 ** (64 - shift) - 1))) * factor
    return words


def draw_noise(network: nn.Module, draws: Tensor | None, noise: Mapping[str, Tensor] | None = None) -> None:
    """Sets the numbers of the next batch in every random layer of a network, None for their expectation.

    The first layer uses the draws as they are, each further layer others, so that their numbers are independent.

    Args:
        network: the network.
        draws: ``(N,)`` int64, or None.
        noise: the random numbers themselves by `NOISE` and the layer's number, see `RandomLayer.noise`.
    """
    for index, layer in enumerate(random_layers(network)):
        layer.draws = draws if draws is None or index == 0 else mixed(draws + index)
        layer.noise = None
        if noise is not None:
            layer.noise = noise.get(f"{NOISE}{index}")


def random_layers(network: nn.Module) -> list[RandomLayer]:
    """The random layers of a network in their order."""
    return [layer for layer in network.modules() if isinstance(layer, RandomLayer)]
