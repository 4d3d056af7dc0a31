"""Tests whether noise is used twice: in two messages, in two parameters of a message, or in neighbouring rows.

Given the numbers y of one place, ``<x, y> / |y|`` of independent noise x is standard normal, up to the part of the
clipped update in x, whose norm is at most `bound`. The same noise in both places gives about the square root of the
count of numbers.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import bdtrc, ndtr
from torch import Tensor

from fedleak.attacks.declared_privacy.noise_tests import BLOCK, FEWEST_BLOCKS, Array, chi_square_quantile, median_scales

_NUMBERS = 2**26
"""Numbers of all messages that are kept for comparisons."""
_MOST = 16384
_FEWEST = 256
"""Most and fewest numbers of a message that are kept."""
_PAIRS = 2000
"""Pairs of messages up to which their differences are tested, where products say nothing."""
CLEAR = 8.0
"""Standard deviations by which the same noise must exceed the update, so that products of numbers find it."""
_SMALL = 0.01
"""Largest p-value that is kept."""
_QUIET = 0.25
"""Quantile of a block's energy below which a block of a difference counts as quiet."""
_OUTSIDE = 1e-6
"""Probability that the scale of the noise of a message is above its upper bound, and that it is below its lower one."""
_ROUNDING = 1e-5
"""Relative error of the norm of a clipped update and of a product of messages, in float32."""


@dataclass(frozen=True)
class Pairs:
    """Comparisons of noise in two places.

    Attributes:
        p: ``(K,)`` p-values of independent noise, up to 0.01.
        correlation: ``(K,)`` cosines.
        messages: ``(K, 2)`` numbers of the two messages, equal where two places of one message are compared.
        total: number of comparisons, with those of larger p-values.
    """

    p: Array
    correlation: Array
    messages: NDArray[np.int64]
    total: int


@dataclass(frozen=True)
class ComparedMessages:
    """Numbers of messages, or of one place in each, that are compared.

    Attributes:
        numbers: ``(V, n)`` in units of the declared noise, zero where padded.
        names: ``(V,)`` numbers of the messages in the recording.
        smallest: ``(V,)`` lower bound of the scale of the noise in these units, at most 1.
        largest: ``(V,)`` upper bound of that scale, at most 1.
    """

    numbers: Tensor
    names: Tensor
    smallest: Tensor
    largest: Tensor

    @classmethod
    def as_declared(cls, numbers: Tensor, names: Tensor) -> "ComparedMessages":
        """Messages whose noise has the declared scale."""
        scales = torch.ones(len(names), dtype=torch.float64)
        return cls(numbers, names, scales, scales)

    @property
    def lengths(self) -> Tensor:
        """``(V,)`` norms."""
        norms: Tensor = torch.linalg.vector_norm(self.numbers, dim=1)
        return norms.double().clamp(min=1e-30)

    def first(self, width: int) -> "ComparedMessages":
        """The first numbers of each."""
        return dataclasses.replace(self, numbers=self.numbers[:, :width])

    def at(self, rows: Tensor) -> "ComparedMessages":
        """Those of some rows, in their order."""
        return ComparedMessages(self.numbers[rows], self.names[rows], self.smallest[rows], self.largest[rows])


def compared(x: ComparedMessages, y: ComparedMessages, *, bound: float) -> Pairs:
    """Comparisons of messages x with as many others y, by the first numbers of both.

    `bound` is the largest norm of the clipped update, in units of the declared noise.
    """
    width = min(x.numbers.shape[1], y.numbers.shape[1], _MOST)
    x = x.first(width)
    y = y.first(width)
    return _of_products(
        (x.numbers * y.numbers).sum(1).double(),
        torch.stack([x.lengths, y.lengths]),
        torch.stack([x.largest, y.largest]),
        torch.stack([x.names, y.names], dim=1),
        bound,
    )


def compared_all(x: ComparedMessages, y: ComparedMessages, *, bound: float) -> Pairs:
    """Comparisons of all pairs of messages of equal widths, each pair once if x and y are the same object.

    Under an update that may dominate the noise, it is tested too whether the difference of two messages lacks noise in
    some blocks, where the two updates agree.
    """
    width = x.numbers.shape[1]
    is_pair = torch.ones(len(x.names), len(y.names), dtype=torch.bool)
    if x is y:
        is_pair = is_pair.triu(1)
    first, second = is_pair.nonzero(as_tuple=True)
    names = torch.stack([x.names[first], y.names[second]], dim=1)
    pairs = _of_products(
        (x.numbers @ y.numbers.T)[first, second].double(),
        torch.stack([x.lengths[first], y.lengths[second]]),
        torch.stack([x.largest[first], y.largest[second]]),
        names,
        bound,
    )
    # In units of the noise, the same noise has a product of sqrt(width), and the update one of up to the bound.
    smallest = float(torch.cat([x.largest, y.largest]).min())
    is_clear = width**0.5 - bound / smallest > CLEAR
    if is_clear or not 0 < len(first) <= _PAIRS or width < FEWEST_BLOCKS * BLOCK:
        return pairs
    p = _of_differences(x, y, first, second)
    is_small = p <= _SMALL
    # Differences have no cosine. Each pair is tested twice.
    return Pairs(
        p=np.concatenate([pairs.p, p[is_small]]),
        correlation=np.concatenate([pairs.correlation, np.full(int(is_small.sum()), np.nan)]),
        messages=np.concatenate([pairs.messages, names.numpy()[is_small]]),
        total=2 * pairs.total,
    )


def _of_products(products: Tensor, lengths: Tensor, largest: Tensor, names: Tensor, bound: float) -> Pairs:
    """Comparisons with small p-values.

    Of a message x with noise of a scale s and an update of norm ``bound`` at most, ``|<x, y>| / |y|`` exceeds the bound
    by as much as ``s |z|`` of a standard normal z.

    Args:
        products: ``(K,)`` products of x and y.
        lengths: ``(2, K)`` their norms.
        largest: ``(2, K)`` upper bounds of the scales of their noise.
        names: ``(K, 2)`` numbers of the messages.
        bound: largest norm of the clipped update.
    """
    # Each of the two may be the given one; the larger p-value is cautious.
    beyond = (products.abs() / lengths.flip(0) - bound * (1 + _ROUNDING)) / largest
    p = np.minimum(2 * ndtr(-beyond.amin(0).numpy()), 1)
    is_small = p <= _SMALL
    cosines = (products / lengths.prod(0)).numpy()
    return Pairs(p[is_small], cosines[is_small], names.numpy()[is_small], len(p))


def _of_differences(x: ComparedMessages, y: ComparedMessages, first: Tensor, second: Tensor) -> Array:
    """``(K,)`` p-values of the number of blocks of the halved differences with little energy."""
    width = x.numbers.shape[1] // BLOCK * BLOCK
    p_values = [np.zeros(0)]
    for i, j in zip(torch.split(first, 256), torch.split(second, 256), strict=True):
        mine = x.numbers[i]
        theirs = y.numbers[j]
        # The difference of two independent noises has twice the variance of one.
        is_padding = (mine == 0) & (theirs == 0)
        squares = ((mine - theirs).double().square() / 2).masked_fill(is_padding, torch.nan)
        blocks = squares[:, :width].reshape(len(i), width // BLOCK, BLOCK).sum(2)
        # Small noise alone is no noise that is used twice.
        smallest = torch.minimum(x.smallest[i], y.smallest[j])
        energies = (blocks / smallest.square()[:, None]).numpy()
        # Of independent noise, a quarter of the blocks is below the quartile; an update only makes them fewer.
        number = (~np.isnan(energies)).sum(1)
        quiet = (energies <= chi_square_quantile(_QUIET, BLOCK)).sum(1)
        p = bdtrc(quiet - 1, np.maximum(number, 1), _QUIET)
        p_values.append(np.where(number >= FEWEST_BLOCKS, p, 1.0))
    return np.concatenate(p_values)


class SeenNoise:
    """Numbers of all messages so far, with which those of the next round are compared.

    Messages of one round are compared with each other, with those of the round before, and with all earlier ones of the
    same client.

    Args:
        messages: number of messages of the recording.
    """

    def __init__(self, messages: int) -> None:
        self._size = max(_FEWEST, min(_MOST, _NUMBERS // max(messages, 1)))
        self._rounds: list[tuple[int, Tensor, ComparedMessages]] = []

    def add(self, x: Tensor, clients: Tensor, names: Tensor, *, round_number: int, bound: float) -> Iterator[Pairs]:
        """Comparisons of the messages of a round with all before.

        Args:
            x: ``(V, n)`` the messages in units of the declared noise, NaN where padded.
            clients: ``(V,)`` pseudonyms.
            names: ``(V,)`` numbers of the messages in the recording.
            round_number: the round.
            bound: largest norm of the clipped update, in units of the declared noise.
        """
        # A sketch of each message: evenly spaced numbers, and bounds of the scale of its noise.
        stride = max(-(-x.shape[1] // self._size), 1)
        sketch = x[:, ::stride]
        smallest, largest = median_scales(sketch, level=_OUTSIDE)
        current = ComparedMessages(
            sketch.nan_to_num(0.0),
            names,
            torch.from_numpy(np.nan_to_num(smallest, nan=1.0)).clamp(1e-3, 1),
            torch.from_numpy(np.nan_to_num(largest, nan=1.0)).clamp(1e-3, 1),
        )
        yield compared_all(current, current, bound=bound)
        # All pairs with the round before, or with parts of this round; only the same client's with earlier rounds.
        earlier_rounds = [number for number, _, _ in self._rounds if number < round_number]
        latest = max(earlier_rounds, default=round_number)
        for number, senders, before in self._rounds:
            if number >= latest:
                width = min(current.numbers.shape[1], before.numbers.shape[1])
                yield compared_all(current.first(width), before.first(width), bound=bound)
            else:
                mine, theirs = (clients[:, None] == senders).nonzero(as_tuple=True)
                yield compared(current.at(mine), before.at(theirs), bound=bound)
        self._rounds.append((round_number, clients, current))
