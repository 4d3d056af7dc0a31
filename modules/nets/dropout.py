"""Dropout whose masks follow from numbers that come with the examples, so that no global random state decides."""

import torch
from torch import Tensor, nn

# The finaliser of splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"), signed.
_STEPS = ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1))
_STRIDE = -0x61C8864680B583EB
_BITS = 24


class Dropout(nn.Module):
    """Zeroes each feature of an example with a given probability, and scales up the rest.

    Nothing is dropped while `draws` is None, as after training.

    Args:
        probability: of a zero, below 1.
    """

    draws: Tensor | None

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.draws = None

    def forward(self, features: Tensor) -> Tensor:
        """``(N, F)`` -> the same shape; `draws` is ``(N,)`` int64."""
        if self.draws is None or self.probability == 0:
            return features
        places = torch.arange(features.shape[1], device=features.device)
        kept: Tensor = uniform(self.draws[:, None] + _STRIDE * (places + 1)) >= self.probability
        return features * (kept / (1 - self.probability))


def uniform(draws: Tensor) -> Tensor:
    """int64 numbers to numbers in [0, 1), as if drawn: equal for equal ones, unrelated for others."""
    numbers: Tensor = (mixed(draws) & (2**_BITS - 1)).float() / 2**_BITS
    return numbers


def mixed(words: Tensor) -> Tensor:
    """A bijection of 64-bit words under which every bit of the result depends on every bit of the word."""
    for shift, factor in _STEPS:
        words = (words ^ ((words >> shift) & (2 ** (64 - shift) - 1))) * factor
    return words


def draw_dropout(network: nn.Module, draws: Tensor | None) -> None:
    """Tells every dropout of a network the numbers of the next batch, None to drop nothing."""
    for layer in network.modules():
        if isinstance(layer, Dropout):
            layer.draws = draws
