"""Upper end of the mean of a bounded law of which nothing else is known, and of clients who were not drawn."""

import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Values = NDArray[np.float64]
_MOST_DISTINCT = 256
"""Distinct values above which neighbours are replaced by their mean: bins of 1/256 of the range of the values shift an
end by less than 1e-5 of this range."""
_STEP = 0.05
"""Step of the integral in the logarithm of the distance from the real axis. With it a tail of 1,000 clients is right to
1e-5 of itself, one of 100,000 to about a hundredth."""
_FIRST = 1e-4
"""Distance from the real axis, over the saddle point, at which the integral starts; it is constant below."""
_LAST = 1e9
"""Distance at which it ends at last."""
_VANISHED = 25.0
"""Negative logarithm of the size of the integrand, relative to that on the real axis, at which it counts as zero."""
_BEYOND = 200
"""Simulations of clients that were not drawn whose mean is beyond the end: so many give the end its accuracy."""
_MOST_NUMBERS = 2**22
"""Numbers of all simulations together, at most."""
_LEAST = 1e-300
"""Probability that stands for any smaller one, so that it has a logarithm."""


def upper_end(values: Values, most: float, tail: float, *, sizes: Values | None = None, times: float = 1.0) -> float:
    """Upper end of the mean of a law of which nothing is known but its largest possible value.

    It is the quantile ``1 - tail`` of ``sum_i w_i z_i`` over weights ``w`` that are uniform on the simplex (a
    Dirichlet distribution with parameters 1), where ``z`` has the values and one more: `most`. So it is a Bayesian
    bootstrap with one more client, who has the largest possible value. For values of 0 and 1 it is the end of Clopper
    and Pearson; for n equal values ``v``, ``v + (most - v) (1 - tail^(1/n))``. That it holds for every law is a
    conjecture of Gaffke, and of Learned-Miller and Thomas: no counterexample is known, and docs/audit/gate.md has the
    coverage that was measured.

    Uniform weights are independent exponential variables over their sum, so the sum is at most t where
    ``Q = sum_i E_i (z_i - t) <= 0``; `_probability_positive` computes the probability of the contrary.

    >>> round(upper_end(np.zeros(5), 1.0, 0.025), 4)  # 1 - 0.025^(1/5)
    0.5218

    Args:
        values: ``(U,)`` values, at least one.
        most: largest possible value.
        tail: probability that the mean is above the end.
        sizes: ``(U,)`` weight of each value, e.g. clients of a group; None for equal ones. The added client weighs
            as much as a value does on average.
        times: how many times each value counts.

    References:
        [Gaffke05].

        E. Learned-Miller and P. S. Thomas, "A new confidence interval for the mean of a bounded random variable",
        2019, arXiv:1905.06208.
    """
    values = np.minimum(values, most)  # beyond it by rounding alone
    if values.min() == most:
        return most
    sizes = np.ones_like(values) if sizes is None else sizes / sizes.mean()
    values, sizes, counts = _merged(values, sizes)
    counts = counts * times

    def excess(end: float) -> float:
        """Logarithm of the tail over P(mean > end), which grows with the end, and is 0 at the one sought."""
        gaps = np.append(sizes * (values - end), most - end)
        probability = _probability_positive(gaps, np.append(counts, 1.0))
        return math.log(tail) - math.log(max(probability, _LEAST))

    start = float(np.average(values, weights=sizes * counts))
    almost = start + (most - start) * (1 - 1e-12)
    if excess(almost) <= 0:  # the end is at the largest value to rounding
        return most
    if excess(start) >= 0:  # with a tail of about a half
        return start
    return float(brentq(excess, start, almost, xtol=1e-9 * (most - start)))


def upper_end_of_others(values: Values, most: float, tail: float, others: int, *, sizes: Values | None = None) -> float:
    """Upper end of the mean of clients of a recording who were not drawn, by those who were.

    It is the quantile ``1 - tail`` of the mean of so many clients who are drawn from Pólya's urn: it has the values and
    one more, `most`, and every client who is drawn is put back with a copy. So the weights are those of `upper_end`, as
    far as a finite number of clients has them. For values of 0 and 1 it is the exact end, that of the hypergeometric
    distribution.

    Args:
        values: ``(U,)`` values of the clients that were drawn.
        most: largest possible value.
        tail: probability that the mean is above the end.
        others: number of clients that were not drawn.
        sizes: see `upper_end`.

    References:
        [Meeden91], for the urn without the added client.
    """
    values = np.minimum(values, most)  # beyond it by rounding alone
    sizes = np.ones_like(values) if sizes is None else sizes / sizes.mean()
    values, sizes, balls = _merged(values, sizes)
    # The urn has one ball of the largest possible value besides.
    values = np.append(values, most)
    sizes = np.append(sizes, 1.0)
    balls = np.append(balls, 1.0)
    repetitions = min(math.ceil(_BEYOND / tail), _MOST_NUMBERS // len(balls))
    drawn = _drawn_from_urn(tuple(balls), others, repetitions)
    means = (drawn @ (sizes * values)) / (drawn @ sizes)
    # Of the simulated means, floor(tail * repetitions) are above the end.
    rank = repetitions - 1 - math.floor(tail * repetitions)
    return float(np.partition(means, rank)[rank])


@functools.lru_cache(maxsize=2)  # up to 32 MB each
def _drawn_from_urn(balls: tuple[float, ...], draws: int, repetitions: int) -> Values:
    """``(repetitions, K)`` how often each kind of ball is drawn from Pólya's urn, which starts with so many of each."""
    random = np.random.default_rng(0)
    # The shares of the kinds in the limit have a Dirichlet distribution; given these, draws are independent.
    shares = random.dirichlet(balls, repetitions)
    return random.multinomial(draws, shares).astype(np.float64)


def _merged(values: Values, sizes: Values) -> tuple[Values, Values, Values]:
    """Distinct values with their sizes and how often each occurs; of very many, the means of bins."""
    pairs, counts = np.unique(np.stack([values, sizes]), axis=1, return_counts=True)
    if pairs.shape[1] <= _MOST_DISTINCT:
        distinct_values, distinct_sizes = pairs
        return distinct_values, distinct_sizes, counts.astype(np.float64)
    edges = np.linspace(values.min(), values.max(), _MOST_DISTINCT)
    _, bins = np.unique(np.digitize(values, edges), return_inverse=True)
    in_bin = np.bincount(bins).astype(np.float64)
    # Mean size of a bin, and the mean of its values by size, which keep the mean of all.
    mean_size = np.bincount(bins, weights=sizes) / in_bin
    mean_value = np.bincount(bins, weights=sizes * values) / (in_bin * mean_size)
    return mean_value, mean_size, in_bin


def _probability_positive(gaps: Values, counts: Values) -> float:
    """Probability that ``Q = sum_i G_i gaps_i > 0``, for independent gamma variables ``G_i`` of shapes ``counts (K,)``.

    With the moment generating function ``M(s) = prod_i (1 - s gaps_i)^(-counts_i)`` it is the integral of ``M(s) / s``
    over the line ``s = c + iy``, by 2 pi i, for any c from 0 to the first pole of M. Where c is the saddle point of the
    integrand, its phase hardly turns before it has vanished, so that a tail of any size is right relative to itself. In
    the logarithm of y the integrand decays at both ends, so that a sum over equal steps converges fast.

    References:
        [Lugannani80], (2.1) to (2.3).
    """
    if gaps.max() <= 0:
        return 0.0
    # Scaled to a deviation of Q of 1; the sign of Q does not depend on the scale.
    gaps = gaps / math.sqrt(float((counts * gaps**2).sum()))
    pole = 1 / float(gaps.max())

    def slope(s: float) -> float:
        """Derivative of the logarithm of the integrand."""
        return float(counts @ (gaps / (1 - s * gaps))) - 1 / s

    # The saddle point c on the real axis, between 0 and the first pole.
    saddle = float(brentq(slope, 1e-9 * pole, (1 - 1e-9) * pole, rtol=1e-3))
    on_axis = 1 - saddle * gaps
    # Where the integrand has vanished relative to its size on the axis: |M(c + iy) / M(c)| = e^-_VANISHED.
    last = 10.0
    while last < _LAST and 0.5 * float(counts @ np.log1p((last * saddle * gaps / on_axis) ** 2)) < _VANISHED:
        last *= 10.0
    distances = saddle * np.exp(_distance_logarithms(last))
    # 1 - s gaps = on_axis (1 - i turned) on the line s = c + iy, which gives the phase and the size of M(s) / s.
    turned = distances[:, None] * gaps / on_axis
    phase = np.arctan(turned) @ counts - np.arctan(distances / saddle)
    size = np.exp(-0.5 * (np.log1p(turned**2) @ counts + np.log1p((distances / saddle) ** 2)))
    # dy = y d(log y); the trapezoidal rule, with the constant integrand below the first distance.
    integrand = np.cos(phase) * size * distances
    integral = float(integrand[0]) + _STEP * (float(integrand.sum()) - 0.5 * float(integrand[0]))
    return integral * math.exp(-float(counts @ np.log(on_axis))) / (saddle * math.pi)


@functools.cache
def _distance_logarithms(last: float) -> Values:
    return np.arange(math.log(_FIRST), math.log(last), _STEP)
