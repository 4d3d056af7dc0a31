"""Tests of the noise in messages: its scale, its law, its resolution, all valid under an unknown, clipped signal.

A message in units of the declared noise is ``x = S + N``: N standard normal, S the clipped update with a norm of at
most `bound` = clip / scale (infinite without a clip). Every p-value holds for the least favourable S within that bound,
so a test without power gives large p-values, never false ones.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import bdtrc, betaincinv, chdtr, chdtri, gammainc, gammaincinv, kolmogorov, log_ndtr, ndtr
from torch import Tensor

Array = NDArray[np.float64]
BLOCK = 32
"""Numbers per block; a few rows of a table that the client trained fill a few blocks."""
_QUANTILES = (0.25, 0.5)
FEWEST_BLOCKS = 8
_TAYLOR = 0.4
"""Bound on the distance that a signal of energy L among n numbers gives the law, over L / n: half of the largest second
derivative of the normal law for the numbers, for their mean and for their variance."""
_FINEST = 2.0**-13
"""Grid, in units of the noise, up to which the noise counts as continuous; float16 has steps of 2^-11 to 2^-10."""
_TIED = 4096
"""Numbers among which equal ones are counted."""
_ZERO = 1e-5
"""Share of exact zeros of continuous noise in float32, generously."""


def chi_square_quantile(share: float | Array, count: float | Array) -> Array:
    """Quantile of the chi-square law, without the overhead of `scipy.stats`."""
    return np.asarray(2 * gammaincinv(np.asarray(count) / 2, share))


_QUANTILE_OF_BLOCK = {quantile: float(chi_square_quantile(quantile, BLOCK)) for quantile in _QUANTILES}


@dataclass(frozen=True)
class Scale:
    """Scale of the noise in some messages, relative to the declared scale.

    Attributes:
        ratio: ``(K,)`` measured over declared scale; NaN where no direction is free of signal.
        low: ``(K,)`` lower end of the interval.
        high: ``(K,)`` upper end.
        too_low: ``(K,)`` p-value of a scale of at least the declared one.
        too_high: ``(K,)`` p-value of at most the declared scale and a clipped update.
        bulk: ``(K,)`` ratio of the median block; NaN with few numbers.
        energy_ratio: ``(K,)`` ratio of all numbers, with the signal.
        free: ``(K,)`` bool, whether the interval is that of blocks without signal, because the clip allows a signal
            that dominates the noise.
    """

    ratio: Array
    low: Array
    high: Array
    too_low: Array
    too_high: Array
    bulk: Array
    energy_ratio: Array
    free: NDArray[np.bool_]

    @property
    def noise(self) -> Array:
        """``(K,)`` the ratio, or that of the median block where the update is in all numbers together, or unknown."""
        return np.where(self.ratio < 1.1 * self.bulk, self.ratio, np.fmin(self.ratio, self.bulk))


def scale(x: Tensor, bound: float, *, level: float) -> Scale:
    """Scale of the noise in each message ``x (K, n)``, NaN where padded, with intervals of coverage ``1 - level``."""
    squares = x.double().square()
    energy, count = squares.nansum(1).numpy(), (~squares.isnan()).sum(1).double().numpy()
    blocks = squares[:, : x.shape[1] // BLOCK * BLOCK].reshape(len(x), -1, BLOCK).sum(2).numpy()
    number = (~np.isnan(blocks)).sum(1)
    many = number >= FEWEST_BLOCKS
    # A message without numbers says nothing of its noise.
    too_low = np.where(count > 0, 2 * chdtr(np.maximum(count, 1), energy), 1.0)
    bulk = np.full(len(x), np.nan)
    if many.any():
        for quantile in _QUANTILES:
            below = (blocks <= _QUANTILE_OF_BLOCK[quantile]).sum(1)
            too_low = np.minimum(too_low, np.where(many, 4 * bdtrc(below - 1, number, quantile), 1))
        bulk[many] = np.sqrt(np.nanmedian(blocks[many], axis=1) / _QUANTILE_OF_BLOCK[0.5])
    allowed = bound**2
    energy_ratio, free = np.sqrt(energy / np.maximum(count, 1)), np.full(len(x), allowed) > 0.1 * count
    ratio = energy_ratio.copy()
    least, most = (chi_square_quantile(share, np.maximum(count, 1)) for share in (level / 2, 1 - level / 2))
    low, high = np.sqrt(np.maximum(energy - allowed - 4 * bound, 0) / most), np.sqrt(energy / least)
    for numbers in (energy_ratio, ratio, low, high):
        numbers[count == 0] = np.nan
    for place in np.flatnonzero(free):
        ratio[place], low[place], high[place] = _of_quiet_blocks(blocks[place], level) if many[place] else (np.nan,) * 3
    return Scale(ratio, low, high, np.minimum(too_low, 1), upper_tail(energy, count, allowed), bulk, energy_ratio, free)


def upper_tail(energy: Array, count: Array, allowed: float | Array) -> Array:
    """Bound of the probability of an energy or a larger one, of noise and a signal of energy up to `allowed`.

    References:
        L. Birge, "An alternative point of view on Lepski's method", IMS Lecture Notes 36, 2001, lemma 8.1.
    """
    width = count + 2 * np.asarray(allowed)
    excess = energy - count - allowed
    with np.errstate(invalid="ignore", over="ignore"):
        root = (np.sqrt(width + 2 * np.maximum(excess, 0)) - np.sqrt(width)) / 2
        tail: Array = np.where(excess > 0, np.exp(-np.square(root)), 1.0)
    return np.where(np.isfinite(width), tail, 1.0)


def _of_quiet_blocks(energies: Array, level: float) -> tuple[float, float, float]:
    """Ratio and interval from the blocks of one message without signal; NaN if they do not look like noise alone.

    Energies that are NaN are padding, and no blocks of the message. Blocks of more energy than noise has are left out
    until none are left. The others must spread as those of noise do.
    """
    blocks = energies[~np.isnan(energies)]  # a message that is shorter than others is padded with NaN
    quiet = blocks
    # A block of noise exceeds this multiple of the median with a probability of 1e-4.
    loud = chdtri(BLOCK, 1e-4) / _QUANTILE_OF_BLOCK[0.5]
    for _ in range(20):
        is_quiet = quiet <= loud * np.median(quiet)
        if is_quiet.all():
            break
        quiet = quiet[is_quiet]
    count = len(quiet)
    if count < max(FEWEST_BLOCKS, len(blocks) / 2):
        return (math.nan,) * 3
    # The variance of a chi-square law of BLOCK degrees of freedom over its squared mean is 2 / BLOCK: the spread is 1.
    spread = quiet.var() / max(quiet.mean(), 1e-300) ** 2 * BLOCK / 2
    spread_error = math.sqrt((2 + 12 / BLOCK) / count)
    if abs(spread - 1) > 4 * spread_error:
        return (math.nan,) * 3
    total, numbers = float(quiet.sum()), count * BLOCK
    low, high = (math.sqrt(total / chi_square_quantile(share, numbers)) for share in (1 - level / 2, level / 2))
    return math.sqrt(total / numbers), low, high


def median_scales(x: Tensor, *, level: float) -> tuple[Array, Array]:
    """``(K,)`` lower and upper bound of the scale of the noise in each message ``x (K, n)``, from the middle block.

    A signal can only add to the energy of a block. So the energy of the middle one of m blocks, over the quantile of
    noise that the middle one of m draws is below with probability `level`, is below the noise's variance with at most
    that probability, whatever the signal is. The lower bound holds where half of the blocks have no signal.

    Returns:
        Both bounds, NaN with fewer blocks than `FEWEST_BLOCKS`.
    """
    squares = x[:, : x.shape[1] // BLOCK * BLOCK].double().square()
    blocks = np.sort(squares.reshape(len(x), -1, BLOCK).sum(2).numpy(), axis=1)  # NaN, of padding, is last
    count = (~np.isnan(blocks)).sum(1)
    middle = (count + 1) // 2
    enough = np.flatnonzero(count >= FEWEST_BLOCKS)
    energies = blocks[enough, middle[enough] - 1]
    bounds = np.full((2, len(x)), np.nan)
    for bound, share in zip(bounds, (1 - level, level), strict=True):
        # The middle one of m uniform draws has the beta law of `middle` and m + 1 - `middle`.
        below = betaincinv(middle[enough], count[enough] + 1 - middle[enough], share)
        bound[enough] = np.sqrt(energies / chi_square_quantile(below, BLOCK))
    return bounds[0], bounds[1]


def quiet_half(x: Tensor) -> Tensor:
    """``(K, m)`` numbers of the quieter half of the blocks: half of a block is chosen by, the other half is returned.

    So the choice does not distort the law of what is returned.
    """
    blocks = x[:, : x.shape[1] // BLOCK * BLOCK].reshape(len(x), -1, BLOCK)
    order = blocks[..., 0::2].square().sum(2).nan_to_num(torch.inf).argsort(1)[:, : max(blocks.shape[1] // 2, 1)]
    return blocks[..., 1::2].gather(1, order[..., None].expand(-1, -1, BLOCK // 2)).flatten(1)


@dataclass(frozen=True)
class Law:
    """Distance of the noise from the normal law.

    Attributes:
        distance: ``(K,)`` Kolmogorov-Smirnov distance.
        smirnov: ``(K,)`` p-value of that distance.
        anderson: ``(K,)`` p-value of Anderson and Darling's statistic; NaN where the signal may disturb it.
        conclusive: ``(K,)`` bool, whether noise of Laplace's law would have been found.
    """

    distance: Array
    smirnov: Array
    anderson: Array
    conclusive: NDArray[np.bool_]


def law(x: Tensor, allowed: Array) -> Law:
    """Tests of the normal law after centring and scaling, so that only the shape counts.

    Messages ``x (K, n)``, NaN where padded, hold a signal of energies up to ``allowed (K,)``. The distance is compared
    with Kolmogorov's law, which is that of a law known beforehand: conservative here.

    References:
        M. A. Stephens, "EDF statistics for goodness of fit and some comparisons", JASA, 1974, section 2.
        R. B. D'Agostino and M. A. Stephens, "Goodness-of-Fit Techniques", 1986, table 4.9.
    """
    values = np.sort(x.numpy(), axis=1).astype(float)  # NaN last
    inside = ~np.isnan(values)
    n = np.maximum(inside.sum(1), 1)[:, None].astype(float)
    centred = values - np.nansum(values, 1, keepdims=True) / n
    deviation = np.sqrt(np.nansum(np.square(centred), 1, keepdims=True) / np.maximum(n - 1, 1))
    z = np.where(inside, centred / np.maximum(deviation, 1e-30), 0.0)
    place = np.arange(1, z.shape[1] + 1)
    u = ndtr(z)
    gap = np.where(inside, np.maximum(place / n - u, u - (place - 1) / n), 0)
    n = n[:, 0]
    distance, slack = gap.max(1), _TAYLOR * allowed / np.sqrt(n)
    smirnov = kolmogorov(np.maximum(np.sqrt(n) * distance - slack, 0))
    sums = np.where(inside, (2 * place - 1) * log_ndtr(z) + (2 * n[:, None] + 1 - 2 * place) * log_ndtr(-z), 0).sum(1)
    square = (-n - sums / n) * (1 + 0.75 / n + 2.25 / n**2)
    anderson = np.where(square > 0.6, np.exp(1.2937 - 5.709 * square + 0.0186 * np.minimum(square, 100) ** 2), 1.0)
    anderson = np.where(np.square(allowed) <= 0.02 * n, np.where(square > 100, 0.0, anderson), np.nan)
    return Law(distance, smirnov, anderson, np.sqrt(n) * 0.05 > slack + 2.6)


def zeros(x: Tensor) -> tuple[Array, Array]:
    """``(K,)`` p-values of the number of exact zeros in messages ``(K, n)``, NaN where padded; and their shares."""
    exact, count = (x == 0).sum(1).numpy(), (~x.isnan()).sum(1).numpy()
    return np.asarray(gammainc(exact, count * _ZERO)), exact / np.maximum(count, 1)


def grid(x: Tensor) -> Array:
    """``(K,)`` p-values of equal pairs among `_TIED` numbers of messages ``x (K, n)``: small if the noise is on a grid.

    Padding is NaN, and so is the p-value of too few numbers.
    """
    stride = max(x.shape[1] // _TIED, 1)
    values = x[:, ::stride][:, :_TIED].double().sort(1).values.numpy()
    kept = (~np.isnan(values) & (values != 0)).sum(1).astype(float)
    ties = ((values[:, 1:] == values[:, :-1]) & (values[:, 1:] != 0)).sum(1)
    expected = kept**2 / 2 * _FINEST / (2 * math.sqrt(math.pi)) + 1
    tied: Array = np.where(kept >= 512, gammainc(ties, expected), np.nan)
    return tied
