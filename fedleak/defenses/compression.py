"""Lossy updates: clipping alone, the largest numbers only, signs only. None of them has a privacy guarantee."""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.core.ranges import OpenUnitInterval, PositiveFloat
from fedleak.core.release import Release
from fedleak.defenses.base import Defense, Update, per_client
from fedleak.defenses.local_dp import clip_factors


class Clip(Defense):
    """Clipping of each client's whole update to an L2 norm, the first half of local DP.

    Args:
        norm: largest L2 norm of what is sent.

    References:
        [McMahan18].
    """

    def __init__(self, *, norm: PositiveFloat) -> None:
        require(norm > 0, "Clip.norm above 0", norm, "RAIFLE clips at 0.25, 0.05 or 0.025.")
        self.norm = norm

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        factors = clip_factors(update.deltas, self.norm)
        deltas = {name: value * per_client(factors, value) for name, value in update.deltas.items()}
        return dataclasses.replace(update, deltas=deltas)

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        return (Release(clip=self.norm, parameters=parameters),)


class TopK(Defense):
    """Sparsification: a client sends the numbers of largest magnitude in its update and zeros for the others.

    Args:
        share: part of the numbers of the whole update that is sent; of a table, the client's own rows count.

    References:
        [Aji17].
    """

    def __init__(self, *, share: OpenUnitInterval) -> None:
        require(0 < share < 1, "TopK.share between 0 and 1", share, "0.1 sends a tenth of the numbers.")
        self.share = share

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        magnitudes = _magnitudes(update)
        sent_numbers = (_numbers(update) * self.share).ceil().long().clamp(min=1)
        # The smallest magnitude that is sent; padding has magnitude 0 and comes last.
        falling = magnitudes.sort(dim=1, descending=True).values
        least = falling.gather(1, sent_numbers[:, None] - 1).squeeze(1)
        deltas = {}
        for name, delta in update.deltas.items():
            is_sent = delta.abs() >= per_client(least, delta)
            deltas[name] = delta * is_sent
        return dataclasses.replace(update, deltas=deltas)

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        """Which numbers are sent, and each of these as a float."""
        # The entropy of which numbers these are, in bits for each number, is largest for a half.
        share = min(self.share, 0.5)
        entropy = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
        return (Release(bits=entropy + 32 * self.share, parameters=parameters),)


class Sign(Defense):
    """Signs of the update's numbers, times their mean magnitude, which keeps the size of the update.

    References:
        [Bernstein18]; [Karimireddy19] (the scale).
    """

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        mean = _magnitudes(update).sum(1) / _numbers(update).clamp(min=1)
        deltas = {name: value.sign() * per_client(mean, value) for name, value in update.deltas.items()}
        return dataclasses.replace(update, deltas=deltas)

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        """One of three values for each number."""
        return (Release(bits=math.log2(3), parameters=parameters),)


def _magnitudes(update: Update) -> Tensor:
    """``(C, P)`` magnitudes of all numbers of the clients, zero where padded."""
    return torch.cat([value.flatten(1).abs() for value in update.deltas.values()], dim=1)


def _numbers(update: Update) -> Tensor:
    """``(C,)`` count of each client's own numbers."""
    total = torch.zeros(len(next(iter(update.deltas.values()))))
    for name, delta in update.deltas.items():
        if name in update.rows:
            rows = (update.rows[name] >= 0).sum(1).cpu()
            total += rows * math.prod(delta.shape[2:])
        else:
            total += math.prod(delta.shape[1:])
    return total
