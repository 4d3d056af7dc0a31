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
    parameters: Mapping[str, Tensor], whole: Tensor, *, bound: float, participants: int, level: float
) -> MissingNoise:
    """Participants without noise, from the sums in units of their declared noise.

    If `k` of `n` participants add none, the variance of the sum's noise is ``(n - k) / n`` of the declared one: ``k = n
    (1 - ratio)``. The variance is that of all numbers, or of the median block where the update may be in it.

    Args:
        parameters: sums by parameter ``(K, m)``, NaN where padded.
        whole: ``(K, M)`` all of them in a row.
        bound: largest norm of the summed updates, in units of the noise; infinite without a clip.
        participants: clients in a sum, `n`.
        level: probability with which any interval of a sum misses the number.

    References:
        Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
        Aggregation", ICML 2021, arXiv:2102.06387, on noise that participants of a sum share.
    """
    share = level / (1 + len(parameters)) / 4
    ratio, least, most = _variance(whole, bound, participants, share)
    floor, ceiling = least, most
    for x in parameters.values():
        _, low, high = _variance(x, bound, participants, share)
        floor, ceiling = np.fmax(floor, low), np.fmin(ceiling, high)
    count, fewest, largest = (participants * (1 - np.clip(one, 0, 1)) for one in (ratio, most, least))
    return MissingNoise(count, fewest, largest, ~(floor > ceiling))


def whole_numbers(low: float, high: float) -> range:
    """Numbers of participants, at least 1, within an interval; none if all participants add less noise."""
    return range(max(math.ceil(low), 1), math.floor(high) + 1)


def _variance(x: Tensor, bound: float, participants: int, share: float) -> tuple[Array, Array, Array]:
    """``(K,)`` variance of the noise over the declared one, and its least and largest value, each of level `share`.

    An update only adds energy to numbers and blocks. So their energy, and that of the median block, bounds the noise
    from above; the energy without that of the largest update bounds it from below.
    """
    squares = x.double().square()
    energy, count = squares.nansum(1).numpy(), np.maximum((~squares.isnan()).sum(1).double().numpy(), 1)
    ratio, allowed = energy / count, bound**2
    most = energy / chi_square_quantile(share, count)
    quiet, below = _of_median_block(squares, share)
    # What the update may add counts where it is a noticeable part of a participant's noise.
    ratio = ratio if allowed * participants < 0.1 * count.min() else np.fmin(ratio, quiet)
    return ratio, _least(energy, count, allowed, share), np.fmin(most, below)


def _of_median_block(squares: Tensor, share: float) -> tuple[Array, Array]:
    """``(K,)`` variance by the median energy of the blocks, and its upper bound; NaN with few blocks."""
    blocks = squares[:, : squares.shape[1] // BLOCK * BLOCK].reshape(len(squares), -1, BLOCK).sum(2).numpy()
    middle = float(chi_square_quantile(0.5, BLOCK))
    ratio, most = np.full(len(blocks), np.nan), np.full(len(blocks), np.nan)
    for place, energies in enumerate(blocks):
        kept = np.sort(energies[~np.isnan(energies)])
        if len(kept) >= FEWEST_BLOCKS:
            # No more than `rank` blocks of noise alone are below the median, but with probability `share`.
            rank = int(np.searchsorted(-bdtrc(np.arange(len(kept)), len(kept), 0.5), -share))
            ratio[place] = np.median(kept) / middle
            most[place] = kept[min(rank, len(kept) - 1)] / middle
    return ratio, most


def _least(energy: Array, count: Array, allowed: float, share: float) -> Array:
    """``(K,)`` smallest variance with which noise and a clipped update reach an energy with probability `share`."""
    low, high = np.zeros(len(energy)), energy / count
    for _ in range(40):
        middle = np.maximum((low + high) / 2, 1e-300)
        possible = upper_tail(energy / middle, count, allowed / middle) > share
        low, high = np.where(possible, low, middle), np.where(possible, middle, high)
    return low
