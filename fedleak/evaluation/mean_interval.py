"""Interval of a mean over clients that holds for few clients, for equal values, and for mixtures of 0 and 1."""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq

Values = NDArray[np.float64]

TAIL = 0.025
"""Probability that an interval of 95% leaves out at each end."""
UNBOUNDED = (-math.inf, math.inf)
"""Span of a metric without a least and a largest value."""

_MOST_DISTINCT = 256
"""Distinct values above which neighbours are replaced by their mean: bins of 1/256 of the range of the values shift an
end by less than 1e-5 of this range."""
_STEP = 0.05
"""Step of the integral in the logarithm of the distance from the real axis. With it a tail of 1,000 clients is right to
1e-5 of itself, one of 100,000 to about a hundredth."""
_FIRST, _LAST = 1e-4, 1e9
"""Distances from the real axis, over the saddle point, at which the integral starts (below, it is constant) and ends at
last."""
_VANISHED = 25.0
"""Negative logarithm of the size of the integrand, relative to that on the real axis, at which it counts as zero."""
MOST_TIMES = 1e4
"""How many times as many clients are too many to ask for."""
_BEYOND, _MOST_NUMBERS = 200, 2**22
"""Simulations of clients that were not drawn: so many with a mean beyond the end, and so many numbers at most."""
_LEAST = 1e-300
"""Probability that stands for any smaller one, so that it has a logarithm."""


@dataclass(frozen=True)
class MeanOverClients:
    """Mean of a metric over clients, of which intervals for any number of tests are asked.

    The unit is the client, or a group of clients whose values depend on each other because they were sent the same
    model or items. The interval is about **clients like these**: whoever the same federation might have recruited. It
    is the union of those that apply:

    * Where the metric has a span, the bound of Gaffke, see `upper_end`. It asks nothing of the law of the values, and
      is that of Clopper and Pearson where all of them are at the ends of the span.
    * Where the metric has no span, a t interval.
    * Where clients affect each other's values (an AUC over people), a t interval of their influences as well.

    With several trainings, that of the mean over trainings (a t interval) is added: both are independent, so the
    squares of their distances from the mean add up. With one training the interval is about that training alone.

    Attributes:
        mean: the mean.
        values: ``(U,)`` mean value of each unit.
        sizes: ``(U,)`` number of clients of each unit.
        span: least and largest possible value of a client.
        trainings: ``(S,)`` mean of each training; empty for one.
        influences: ``(U,)`` influences of the units, whose mean may differ from `mean`; empty for none.

    References:
        G. Y. Zou and A. Donner, "Construction of confidence limits about effect measures: a general approach",
        Statistics in Medicine, 2008, for the sum of two independent parts.
    """

    mean: float
    values: Values
    sizes: Values
    span: tuple[float, float]
    trainings: Values
    influences: Values

    @classmethod
    def of_clients(cls, values: Values, span: tuple[float, float], sizes: Values | None = None) -> "MeanOverClients":
        """Mean over clients of one training who do not affect each other.

        Args:
            values: ``(V,)`` values of the clients, NaN where one has none.
            span: least and largest possible value.
            sizes: ``(V,)`` weight of each, e.g. its number of answers; None for equal ones.
        """
        known = ~np.isnan(values)
        weights = np.ones_like(values) if sizes is None else sizes
        values, weights = values[known].astype(np.float64), weights[known]
        nothing = np.empty(0)
        mean = float(np.average(values, weights=weights)) if len(values) else math.nan
        return cls(mean, values, weights, span, nothing, nothing)

    def minus(self, constant: float) -> "MeanOverClients":
        """The same mean less a constant, e.g. the value of guessing."""
        least, most = self.span
        return MeanOverClients(
            self.mean - constant,
            self.values - constant,
            self.sizes,
            (least - constant, most - constant),
            self.trainings - constant,
            self.influences - constant,
        )

    def __neg__(self) -> "MeanOverClients":
        """The mean of the negated values."""
        least, most = self.span
        return MeanOverClients(-self.mean, -self.values, self.sizes, (-most, -least), -self.trainings, -self.influences)

    def ends(self, low_tests: int = 1, high_tests: int = 1) -> tuple[float, float]:
        """Lower and upper end, each one-sided at 97.5% for so many tests together (Bonferroni)."""
        return -(-self)._upper_end(TAIL / low_tests), self._upper_end(TAIL / high_tests)

    def ends_of_recording(self, not_drawn: float, low_tests: int = 1, high_tests: int = 1) -> tuple[float, float]:
        """Ends of the mean over all clients of a recording, of which these were drawn without replacement.

        What is unknown is the mean of the clients that were not drawn, see `upper_end_of_others`. A t interval shrinks
        with the root of their share. With all clients drawn the mean is a fact: both ends are the mean.

        Args:
            not_drawn: share of the clients of the recording that were not drawn, from 0 to 1.
            low_tests: see `ends`.
            high_tests: see `ends`.

        References:
            W. G. Cochran, "Sampling Techniques", 3rd edition, 1977, section 2.6, for t.
        """
        if not_drawn <= 0:
            return self.mean, self.mean
        low = -(-self)._upper_end(TAIL / low_tests, not_drawn=not_drawn)
        return low, self._upper_end(TAIL / high_tests, not_drawn=not_drawn)

    def times_that_decide(self, limit: float, low_tests: int = 1, high_tests: int = 1) -> float:
        """How many times as many clients, of the same values in the same shares, have an interval that ends at a limit.

        Infinite where more than `MOST_TIMES` times as many have not.

        Args:
            limit: limit, beyond which one end of the interval is now.
            low_tests: see `ends`.
            high_tests: see `ends`.
        """
        if limit < self.mean:
            return (-self).times_that_decide(-limit, high_tests, low_tests)

        def beyond(logarithm: float) -> float:
            return self._upper_end(TAIL / high_tests, times=math.exp(logarithm)) - limit

        most = math.log(MOST_TIMES)
        if not beyond(most) <= 0:
            return math.inf
        return math.exp(brentq(beyond, 0.0, most, xtol=1e-3)) if beyond(0.0) > 0 else 1.0

    def _upper_end(self, tail: float, *, not_drawn: float = 1.0, times: float = 1.0) -> float:
        """Upper end for one tail.

        Args:
            tail: probability that the mean is above it.
            not_drawn: see `ends_of_recording`; 1 for clients like these, of whom there are infinitely many.
            times: how many times each client counts.
        """
        mean, most = self.mean, self.span[1]
        if not math.isfinite(mean):  # no client has a value, or one has an infinite one
            return mean
        # Clients that were drawn are known, so only the others' mean can be at the largest value.
        most_of_all = (1 - not_drawn) * mean + not_drawn * most
        shrunk = math.sqrt(not_drawn / times)
        if not math.isfinite(most):
            end = mean + shrunk * _half_of_t(self.values, tail)
        elif not_drawn < 1:
            others = max(round(len(self.values) * not_drawn / (1 - not_drawn)), 1)
            of_others = upper_end_of_others(self.values, most, tail, others, sizes=self.sizes)
            end = (1 - not_drawn) * mean + not_drawn * of_others
        else:
            end = upper_end(self.values, most, tail, sizes=self.sizes, times=times)
        if len(self.influences):
            end = max(end, mean + shrunk * _half_of_t(self.influences, tail))
        if len(self.trainings):
            end = mean + math.hypot(end - mean, math.sqrt(not_drawn) * _half_of_t(self.trainings, tail))
        return max(mean, min(end, most_of_all))


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
        N. Gaffke, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
        variable", Mathematical Methods of Statistics, 2005.

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
        G. Meeden and S. Vardeman, "A noninformative Bayesian approach to interval estimation in finite population
        sampling", Journal of the American Statistical Association, 1991, for the urn without the added client.
    """
    values = np.minimum(values, most)  # beyond it by rounding alone
    sizes = np.ones_like(values) if sizes is None else sizes / sizes.mean()
    values, sizes, balls = _merged(values, sizes)
    values, sizes, balls = np.append(values, most), np.append(sizes, 1.0), np.append(balls, 1.0)
    repetitions = min(math.ceil(_BEYOND / tail), _MOST_NUMBERS // len(balls))
    drawn = _drawn_from_urn(tuple(balls), others, repetitions)
    means = (drawn @ (sizes * values)) / (drawn @ sizes)
    place = repetitions - 1 - math.floor(tail * repetitions)
    return float(np.partition(means, place)[place])


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
        return pairs[0], pairs[1], counts.astype(np.float64)
    edges = np.linspace(values.min(), values.max(), _MOST_DISTINCT)
    bins = np.unique(np.digitize(values, edges), return_inverse=True)[1]
    in_bin = np.bincount(bins).astype(np.float64)
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
        R. Lugannani and S. Rice, "Saddle point approximation for the distribution of the sum of independent random
        variables", Advances in Applied Probability, 1980, (2.1) to (2.3).
    """
    if gaps.max() <= 0:
        return 0.0
    gaps = gaps / math.sqrt(float((counts * gaps**2).sum()))
    pole = 1 / float(gaps.max())

    def slope(s: float) -> float:
        """Derivative of the logarithm of the integrand."""
        return float(counts @ (gaps / (1 - s * gaps))) - 1 / s

    saddle = float(brentq(slope, 1e-9 * pole, (1 - 1e-9) * pole, rtol=1e-3))
    on_axis = 1 - saddle * gaps
    last = 10.0
    while last < _LAST and 0.5 * float(counts @ np.log1p((last * saddle * gaps / on_axis) ** 2)) < _VANISHED:
        last *= 10.0
    distances = saddle * np.exp(_distance_logarithms(last))
    turned = distances[:, None] * gaps / on_axis
    phase = np.arctan(turned) @ counts - np.arctan(distances / saddle)
    size = np.exp(-0.5 * (np.log1p(turned**2) @ counts + np.log1p((distances / saddle) ** 2)))
    integrand = np.cos(phase) * size * distances
    integral = float(integrand[0]) + _STEP * (float(integrand.sum()) - 0.5 * float(integrand[0]))
    return integral * math.exp(-float(counts @ np.log(on_axis))) / (saddle * math.pi)


@functools.cache
def _distance_logarithms(last: float) -> Values:
    return np.arange(math.log(_FIRST), math.log(last), _STEP)


def _half_of_t(values: Values, tail: float) -> float:
    """Distance from the mean to the end of a t interval; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    return float(stats.t.isf(tail, len(values) - 1)) * float(values.std(ddof=1)) / math.sqrt(len(values))
