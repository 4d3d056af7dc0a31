"""Participants of a secure sum that add no noise, by the variance that the sum lacks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc
from torch import Tensor

from fedleak.attacks.declared_privacy.noise_tests import BLOCK, FEWEST_BLOCKS, Array, chi_square_quantile, upper_tail


@dataclass(frozen=True)
class MissingNoise:
    """Participants without noise in each of some sums.

    Attributes:
        count: ``(K,)`` number of participants whose noise is missing, as a real number; NaN where it is unknown.
        low: ``(K,)`` lower end of its interval, valid for every update.
        high: ``(K,)`` upper end, `participants` where the update may hide any number.
        alike: ``(K,)`` bool, whether all parameters can lack the same number, as they do where a participant adds
            nothing to any of them.
    """

    count: Array
    low: Array
    high: Array
    alike: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def missing_noise(
    parameters: Mapping[str, Tensor], all_numbers: Tensor, *, bound: float, participants: int, level: float
) -> MissingNoise:
    """Participants without noise, from the sums in units of their declared noise.

    If `k` of `n` participants add none, the variance of the sum's noise is ``(n - k) / n`` of the declared one: ``k = n
    (1 - ratio)``. The variance is that of all numbers, or of the median block where the update may be in it.

    Args:
        parameters: sums by parameter ``(K, m)``, NaN where padded.
        all_numbers: ``(K, M)`` all of them in a row.
        bound: largest norm of the summed updates, in units of the noise; infinite without a clip.
        participants: clients in a sum, `n`.
        level: probability with which any interval of a sum misses the number.

    References:
        [Kairouz21], on noise that participants of a sum share.
    """
    # Four bounds for all numbers and for each parameter: two ends, each by the energy and by the median block.
    share = level / (1 + len(parameters)) / 4
    ratio, least, most = _variance(all_numbers, bound, participants, share)
    # The intervals of all parameters must overlap if all lack the same participants.
    floor = least
    ceiling = most
    for numbers in parameters.values():
        _, low, high = _variance(numbers, bound, participants, share)
        floor = np.fmax(floor, low)
        ceiling = np.fmin(ceiling, high)
    # k = n (1 - ratio), so the largest variance gives the fewest participants.
    return MissingNoise(
        count=participants * (1 - np.clip(ratio, 0, 1)),
        low=participants * (1 - np.clip(most, 0, 1)),
        high=participants * (1 - np.clip(least, 0, 1)),
        alike=~(floor > ceiling),
    )


def whole_numbers(low: float, high: float) -> range:
    """Numbers of participants, at least 1, within an interval; none if all participants add less noise."""
    return range(max(math.ceil(low), 1), math.floor(high) + 1)


def _variance(x: Tensor, bound: float, participants: int, share: float) -> tuple[Array, Array, Array]:
    """``(K,)`` variance of the noise over the declared one, and its least and largest value, each of level `share`.

    An update only adds energy to numbers and blocks. So their energy, and that of the median block, bounds the noise
    from above; the energy without that of the largest update bounds it from below.
    """
    squares = x.double().square()
    energy = squares.nansum(1).numpy()
    count = np.maximum((~squares.isnan()).sum(1).double().numpy(), 1)
    ratio = energy / count
    allowed = bound**2
    # The energy of noise alone is chi-square: below its quantile with probability `share`.
    most = energy / chi_square_quantile(share, count)
    ratio_of_median, most_of_median = _of_median_block(squares, share)
    # What the update may add counts where it is a noticeable part of a participant's noise.
    if allowed * participants >= 0.1 * count.min():
        ratio = np.fmin(ratio, ratio_of_median)
    return ratio, _least(energy, count, allowed, share), np.fmin(most, most_of_median)


def _of_median_block(squares: Tensor, share: float) -> tuple[Array, Array]:
    """``(K,)`` variance by the median energy of the blocks, and its upper bound; NaN with few blocks."""
    whole_blocks = squares.shape[1] // BLOCK * BLOCK
    blocks = squares[:, :whole_blocks].reshape(len(squares), -1, BLOCK).sum(2).numpy()
    middle = float(chi_square_quantile(0.5, BLOCK))
    ratio = np.full(len(blocks), np.nan)
    most = np.full(len(blocks), np.nan)
    for message, energies in enumerate(blocks):
        sorted_energies = np.sort(energies[~np.isnan(energies)])
        count = len(sorted_energies)
        if count < FEWEST_BLOCKS:
            continue
        # No more than `rank` blocks of noise alone are below the median, but with probability `share`.
        rank = int(np.searchsorted(-bdtrc(np.arange(count), count, 0.5), -share))
        ratio[message] = np.median(sorted_energies) / middle
        most[message] = sorted_energies[min(rank, count - 1)] / middle
    return ratio, most


def _least(energy: Array, count: Array, allowed: float, share: float) -> Array:
    """``(K,)`` smallest variance with which noise and a clipped update reach an energy with probability `share`."""
    # By bisection between 0 and the variance of all energy; 40 halvings are finer than float32.
    low = np.zeros(len(energy))
    high = energy / count
    for _ in range(40):
        middle = np.maximum((low + high) / 2, 1e-300)
        is_possible = upper_tail(energy / middle, count, allowed / middle) > share
        low = np.where(is_possible, low, middle)
        high = np.where(is_possible, middle, high)
    return low
