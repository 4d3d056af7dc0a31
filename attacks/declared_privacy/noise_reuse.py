"""Tests whether noise is used twice: in two messages, in two parameters of a message, or in neighbouring rows.

Given the numbers y of one place, ``<x, y> / |y|`` of independent noise x is standard normal, up to the part of the
clipped update in x, whose norm is at most `bound`. The same noise in both places gives about the square root of the
count of numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import bdtrc, ndtr
from torch import Tensor

from attacks.declared_privacy.noise_tests import BLOCK, FEWEST_BLOCKS, Array, chi_square_quantile, scale

_NUMBERS = 2**26
"""Numbers of all messages that are kept for comparisons."""
_MOST, _FEWEST = 16384, 256
"""Most and fewest numbers of a message that are kept."""
_PAIRS = 2000
"""Pairs of messages up to which their differences are tested, where products say nothing."""
CLEAR = 8.0
"""Standard deviations by which the same noise must exceed the update, so that products of numbers find it."""
_SMALL = 0.01
"""Largest p-value that is kept."""


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


def compared(x: Tensor, y: Tensor, messages: Tensor, *, bound: float) -> Pairs:
    """Comparisons of places ``x (K, n)`` with as many others ``y (K, m)``, by the first numbers of both.

    Numbers, and the largest norm of the clipped update (`bound`), are in units of the declared noise, zero where
    padded; ``messages (K, 2)`` are the numbers of the messages.
    """
    width = min(x.shape[1], y.shape[1], _MOST)
    x, y = x[:, :width], y[:, :width]
    lengths = torch.stack([torch.linalg.vector_norm(one, dim=1) for one in (x, y)])
    return _kept((x * y).sum(1), lengths, messages, bound)


def compared_all(x: Tensor, y: Tensor, messages: tuple[Tensor, Tensor], *, bound: float) -> Pairs:
    """Comparisons of all pairs of messages ``x (A, n)`` and ``y (B, n)``, each pair once if these are the same tensor.

    Under an update that may dominate the noise, it is tested too whether the difference of two messages lacks noise in
    some blocks, where the two updates agree.
    """
    whole = torch.ones(len(x), len(y), dtype=torch.bool)
    one, other = (whole.triu(1) if x is y else whole).nonzero(as_tuple=True)
    lengths = torch.stack([torch.linalg.vector_norm(x, dim=1)[one], torch.linalg.vector_norm(y, dim=1)[other]])
    both = torch.stack([messages[0][one], messages[1][other]], dim=1)
    found = _kept((x @ y.T)[one, other], lengths, both, bound)
    clear = x.shape[1] ** 0.5 - bound > CLEAR
    if clear or len(one) > _PAIRS or x.shape[1] < FEWEST_BLOCKS * BLOCK:
        return found
    p = _of_differences(x, y, one, other)
    kept = p <= _SMALL
    return Pairs(
        np.concatenate([found.p, p[kept]]),
        np.concatenate([found.correlation, np.full(int(kept.sum()), np.nan)]),
        np.concatenate([found.messages, both.numpy()[kept]]),
        2 * found.total,
    )


def _kept(products: Tensor, lengths: Tensor, messages: Tensor, bound: float) -> Pairs:
    """Comparisons with small p-values, of products ``(K,)`` and lengths ``(2, K)``."""
    products, lengths = products.double(), lengths.double().clamp(min=1e-30)
    # Each of the two may be the given one; the longer one is cautious.
    p = np.minimum(2 * ndtr(bound - (products.abs() / lengths.amax(0)).numpy()), 1)
    kept = p <= _SMALL
    return Pairs(p[kept], (products / lengths.prod(0)).numpy()[kept], messages.numpy()[kept], len(p))


def _of_differences(x: Tensor, y: Tensor, one: Tensor, other: Tensor) -> Array:
    """``(K,)`` p-values of the number of blocks of the halved differences with little energy."""
    width, found = x.shape[1] // BLOCK * BLOCK, [np.zeros(0)]
    for i, j in zip(torch.split(one, 256), torch.split(other, 256), strict=True):
        apart = ((x[i] - y[j]).double().square() / 2).masked_fill((x[i] == 0) & (y[j] == 0), torch.nan)[:, :width]
        energies = apart.reshape(len(i), width // BLOCK, BLOCK).sum(2).numpy()
        number = (~np.isnan(energies)).sum(1)
        below = (energies <= chi_square_quantile(0.25, BLOCK)).sum(1)
        found.append(np.where(number >= FEWEST_BLOCKS, bdtrc(below - 1, np.maximum(number, 1), 0.25), 1.0))
    return np.concatenate(found)


class SeenNoise:
    """Numbers of all messages so far, with which those of the next round are compared.

    Messages of one round are compared with each other, with those of the round before, and with all earlier ones of the
    same client.

    Args:
        messages: number of messages of the recording.
    """

    def __init__(self, messages: int) -> None:
        self._size = max(_FEWEST, min(_MOST, _NUMBERS // max(messages, 1)))
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []
        self._rounds: list[int] = []

    def add(self, x: Tensor, clients: Tensor, messages: Tensor, *, round_number: int, bound: float) -> Iterator[Pairs]:
        """Comparisons of messages ``x (V, n)`` of a round with all before; numbers and pseudonyms are ``(V,)``.

        x, NaN where padded, and the largest norm of the clipped update (`bound`) are in units of the declared noise.
        """
        stride = max(-(-x.shape[1] // self._size), 1)
        # Noise that is too small is no noise that is used twice.
        smaller = torch.from_numpy(np.nan_to_num(scale(x[:, ::stride], bound, level=0.5).bulk, nan=1.0)).clamp(1e-3, 1)
        sketch = (x[:, ::stride] / smaller[:, None].to(x)).nan_to_num(0.0)
        yield compared_all(sketch, sketch, (messages, messages), bound=bound)
        latest = max((number for number in self._rounds if number < round_number), default=round_number)
        for number, (before, others, theirs) in zip(self._rounds, self._seen, strict=True):
            if number >= latest:
                width = min(sketch.shape[1], before.shape[1])
                yield compared_all(sketch[:, :width], before[:, :width], (messages, theirs), bound=bound)
            else:
                one, other = (clients[:, None] == others).nonzero(as_tuple=True)
                both = torch.stack([messages[one], theirs[other]], dim=1)
                yield compared(sketch[one], before[other], both, bound=bound)
        self._seen.append((sketch, clients, messages))
        self._rounds.append(round_number)
