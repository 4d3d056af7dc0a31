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
"""Quantiles of a block's energy: too many blocks below one are too little noise, whatever the update is."""
FEWEST_BLOCKS = 8
"""Blocks from which on their quantiles are used."""
_TAYLOR = 0.4
"""Bound on the distance that a signal of energy L among n numbers gives the law, over L / n: half of the largest second
derivative of the normal law for the numbers, for their mean and for their variance."""
_FINEST = 2.0**-13
"""Grid, in units of the noise, up to which the noise counts as continuous; float16 has steps of 2^-11 to 2^-10."""
_TIED = 4096
"""Numbers among which equal ones are counted."""
_ZERO = 1e-5
"""Share of exact zeros of continuous noise in float32, generously."""
_LAPLACE = 0.05
"""Kolmogorov-Smirnov distance from the normal law that noise of Laplace's law has, 0.06, with a margin."""
_CONCLUSIVE = 2.6
"""Distance times the root of the count, of which Kolmogorov's law gives a p-value of 3e-6."""


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
    energy = squares.nansum(1).numpy()
    count = (~squares.isnan()).sum(1).double().numpy()
    at_least_one = np.maximum(count, 1)
    blocks = squares[:, : x.shape[1] // BLOCK * BLOCK].reshape(len(x), -1, BLOCK).sum(2).numpy()
    number = (~np.isnan(blocks)).sum(1)
    has_blocks = number >= FEWEST_BLOCKS
    # An update only adds energy, so little energy is little noise, in all numbers or in many blocks. The test of all
    # numbers gets a half of the level, those of the two quantiles a quarter each.
    # A message without numbers says nothing of its noise.
    too_low = np.where(count > 0, 2 * chdtr(at_least_one, energy), 1.0)
    bulk = np.full(len(x), np.nan)
    if has_blocks.any():
        for quantile in _QUANTILES:
            below = (blocks <= _QUANTILE_OF_BLOCK[quantile]).sum(1)
            p = 4 * bdtrc(below - 1, number, quantile)
            too_low = np.minimum(too_low, np.where(has_blocks, p, 1))
        bulk[has_blocks] = np.sqrt(np.nanmedian(blocks[has_blocks], axis=1) / _QUANTILE_OF_BLOCK[0.5])
    # The interval of the energy: below without the largest update, of norm `bound`, and its product with noise within
    # two of its standard deviations; above without any update.
    allowed = bound**2
    energy_ratio = np.sqrt(energy / at_least_one)
    ratio = energy_ratio.copy()
    least = chi_square_quantile(level / 2, at_least_one)
    most = chi_square_quantile(1 - level / 2, at_least_one)
    low = np.sqrt(np.maximum(energy - allowed - 4 * bound, 0) / most)
    high = np.sqrt(energy / least)
    for numbers in (energy_ratio, ratio, low, high):
        numbers[count == 0] = np.nan
    # Where an update may have more than a tenth of the noise's energy, only blocks without visible update count.
    free = np.full(len(x), allowed) > 0.1 * count
    for message in np.flatnonzero(free):
        quiet = (math.nan,) * 3
        if has_blocks[message]:
            quiet = _of_quiet_blocks(blocks[message], level)
        ratio[message], low[message], high[message] = quiet
    return Scale(
        ratio=ratio,
        low=low,
        high=high,
        too_low=np.minimum(too_low, 1),
        too_high=upper_tail(energy, count, allowed),
        bulk=bulk,
        energy_ratio=energy_ratio,
        free=free,
    )


def upper_tail(energy: Array, count: Array, allowed: float | Array) -> Array:
    """Bound of the probability of an energy or a larger one, of noise and a signal of energy up to `allowed`.

    References:
        [Birge01], lemma 8.1.
    """
    # The energy exceeds n + L + 2 sqrt((n + 2 L) t) + 2 t with probability exp(-t) at most. Solved for t, an excess e
    # over n + L has sqrt(t) = (sqrt(n + 2 L + 2 e) - sqrt(n + 2 L)) / 2.
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
    # The energy of all quiet blocks together is chi-square.
    total = float(quiet.sum())
    numbers = count * BLOCK
    low = math.sqrt(total / chi_square_quantile(1 - level / 2, numbers))
    high = math.sqrt(total / chi_square_quantile(level / 2, numbers))
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
    energies = blocks[..., 0::2].square().sum(2).nan_to_num(torch.inf)
    quieter = energies.argsort(1)[:, : max(blocks.shape[1] // 2, 1)]
    return blocks[..., 1::2].gather(1, quieter[..., None].expand(-1, -1, BLOCK // 2)).flatten(1)


@dataclass(frozen=True)
class NormalityTest:
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


def law(x: Tensor, allowed: Array) -> NormalityTest:
    """Tests of the normal law after centring and scaling, so that only the shape counts.

    Messages ``x (K, n)``, NaN where padded, hold a signal of energies up to ``allowed (K,)``. The distance is compared
    with Kolmogorov's law, which is that of a law known beforehand: conservative here.

    References:
        [Stephens74], section 2.
        [DAgostino86], table 4.9.
    """
    values = np.sort(x.numpy(), axis=1).astype(float)  # NaN last
    inside = ~np.isnan(values)
    counts = np.maximum(inside.sum(1), 1)[:, None].astype(float)
    # Standardised numbers z_1 <= ... <= z_n, and their normal distribution function u.
    centred = values - np.nansum(values, 1, keepdims=True) / counts
    deviation = np.sqrt(np.nansum(np.square(centred), 1, keepdims=True) / np.maximum(counts - 1, 1))
    z = np.where(inside, centred / np.maximum(deviation, 1e-30), 0.0)
    rank = np.arange(1, z.shape[1] + 1)
    u = ndtr(z)
    # Kolmogorov-Smirnov: the empirical distribution function steps from (i - 1) / n to i / n at z_i.
    gap = np.where(inside, np.maximum(rank / counts - u, u - (rank - 1) / counts), 0)
    n = counts[:, 0]
    distance = gap.max(1)
    slack = _TAYLOR * allowed / np.sqrt(n)
    smirnov = kolmogorov(np.maximum(np.sqrt(n) * distance - slack, 0))
    # Anderson and Darling: A^2 = -n - sum_i ((2 i - 1) log u_i + (2 n + 1 - 2 i) log (1 - u_i)) / n, corrected for the
    # mean and the variance that are estimated, and its p-value, both of table 4.9.
    terms = (2 * rank - 1) * log_ndtr(z) + (2 * n[:, None] + 1 - 2 * rank) * log_ndtr(-z)
    sums = np.where(inside, terms, 0).sum(1)
    statistic = (-n - sums / n) * (1 + 0.75 / n + 2.25 / n**2)
    p_of_statistic = np.exp(1.2937 - 5.709 * statistic + 0.0186 * np.minimum(statistic, 100) ** 2)
    anderson = np.where(statistic > 0.6, p_of_statistic, 1.0)
    anderson = np.where(statistic > 100, 0.0, anderson)
    # It weighs the tails, so it holds only for signals too small to disturb them.
    anderson = np.where(np.square(allowed) <= 0.02 * n, anderson, np.nan)
    conclusive = np.sqrt(n) * _LAPLACE > slack + _CONCLUSIVE
    return NormalityTest(distance, smirnov, anderson, conclusive)


def zeros(x: Tensor) -> tuple[Array, Array]:
    """``(K,)`` p-values of the number of exact zeros in messages ``(K, n)``, NaN where padded; and their shares."""
    exact = (x == 0).sum(1).numpy()
    count = (~x.isnan()).sum(1).numpy()
    # Upper tail of a Poisson law with the expected number of zeros.
    p = np.asarray(gammainc(exact, count * _ZERO))
    return p, exact / np.maximum(count, 1)


def grid(x: Tensor) -> Array:
    """``(K,)`` p-values of equal pairs among `_TIED` numbers of messages ``x (K, n)``: small if the noise is on a grid.

    Padding is NaN, and so is the p-value of too few numbers.
    """
    stride = max(x.shape[1] // _TIED, 1)
    values = x[:, ::stride][:, :_TIED].double().sort(1).values.numpy()
    count = (~np.isnan(values) & (values != 0)).sum(1).astype(float)
    ties = ((values[:, 1:] == values[:, :-1]) & (values[:, 1:] != 0)).sum(1)
    # Of n^2 / 2 pairs of normal numbers, a share of step / (2 sqrt(pi)) is in one cell of the grid; one for caution.
    expected = count**2 / 2 * _FINEST / (2 * math.sqrt(math.pi)) + 1
    # Upper tail of a Poisson law; a few hundred numbers have hardly any ties.
    tied: Array = np.where(count >= 512, gammainc(ties, expected), np.nan)
    return tied
