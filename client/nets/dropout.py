"""Dropout with masks computed from numbers that come with the examples, without a global random state.

References:
    N. Srivastava, G. Hinton, A. Krizhevsky, I. Sutskever and R. Salakhutdinov, "Dropout: A Simple Way to Prevent Neural
    Networks from Overfitting", JMLR 2014.
    G. L. Steele, D. Lea and C. H. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014 (`mixed`).
"""

import torch
from torch import Tensor, nn

# Finaliser of splitmix64, as signed numbers.
_STEPS = ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1))
_STRIDE = -0x61C8864680B583EB
_BITS = 24


class Dropout(nn.Module):
    """Dropout of features, with the others scaled up; the identity while `draws` is None.

    Args:
        probability: probability of a zero, below 1.
    """

    draws: Tensor | None

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.draws = None

    def forward(self, features: Tensor) -> Tensor:
        """``(N, ...)`` -> the same shape; `draws` is ``(N,)`` int64."""
        if self.draws is None or self.probability == 0:
            return features
        places = torch.arange(features[0].numel(), device=features.device).reshape(features.shape[1:])
        own = self.draws.reshape(-1, *[1] * places.dim())
        kept: Tensor = uniform(own + _STRIDE * (places + 1)) >= self.probability
        return features * (kept / (1 - self.probability))


def uniform(draws: Tensor) -> Tensor:
    """Pseudorandom numbers in [0, 1) as a hash of int64 numbers."""
    numbers: Tensor = (mixed(draws) & (2**_BITS - 1)).float() / 2**_BITS
    return numbers


def mixed(words: Tensor) -> Tensor:
    """Bijective hash of 64-bit words; every bit of the result depends on every bit of the word."""
    for shift, factor in _STEPS:
        words = (words ^ ((words >> shift) & (2 ** (64 - shift) - 1))) * factor
    return words


def draw_dropout(network: nn.Module, draws: Tensor | None) -> None:
    """Sets the numbers of the next batch in every dropout layer of a network, None to drop nothing.

    The first layer uses the numbers as they are, each further layer others, so that their masks are independent.
    """
    layers = [layer for layer in network.modules() if isinstance(layer, Dropout)]
    for place, layer in enumerate(layers):
        layer.draws = draws if draws is None or place == 0 else mixed(draws + place)
