"""Lower bounds of epsilon from the scores of canaries and their coins, each named for what it assumes.

All bounds are of epsilon at `delta`, at least 0, and hold with probability ``1 - alpha``. Arguments and bounds of shape
``(A,)`` are of A independent audits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from fedleak.core.gaussian_budget import declared_precision, gaussian_epsilon

GAUSSIAN = ("epsilon-gdp", "epsilon-one-run-fdp")
"""Bounds of a Gaussian mechanism, which are known at every delta above 0 and for every number of equal rounds."""

Numbers = NDArray[np.float64]
ALPHA = 0.05
"""Probability with which a bound may exceed the true epsilon."""
GAUSSIAN_LEVEL = 0.01
"""Level of the test of Gaussianity."""
_GRID = 120
"""Thresholds that are tried, at equal distances."""
_SMALLEST = 1e-9
"""Rate to which a lower limit of 0 is raised in an expected logarithm."""
_HALVINGS = 60
"""Bisections of an interval of 80: to the last digit of a float64."""


def clopper_pearson_epsilon(
    hits: ArrayLike,
    positives: ArrayLike,
    alarms: ArrayLike,
    negatives: ArrayLike,
    *,
    delta: float,
    alpha: float = ALPHA,
) -> Numbers:
    """Lower bound of epsilon from a decision on each canary, by Clopper-Pearson intervals of the two rates.

    A mechanism that is (epsilon, delta)-private has ``TPR <= e^epsilon FPR + delta`` and ``TNR <= e^epsilon FNR +
    delta``. The bound is the larger of ``ln((TPR_L - delta) / FPR_U)`` and ``ln((TNR_L - delta) / FNR_U)``, with a
    lower and an upper limit at ``alpha / 2`` each; as ``TNR_L = 1 - FPR_U`` both directions use the same two limits. It
    assumes independent decisions by a threshold that was fixed before the scores were seen. With all of n / 2 canaries
    of each coin decided rightly it is about ``ln(n / 7.4)``, however large epsilon is.

    Scores are above the threshold for ``hits (A,)`` of the ``positives (A,)``, canaries with coin +1, and for ``alarms
    (A,)`` of the ``negatives (A,)``, those with coin -1.

    References:
        [Jagielski20].
        [Nasr21].
    """
    hits = np.asarray(hits, dtype=float)
    positives = np.asarray(positives, dtype=float)
    alarms = np.asarray(alarms, dtype=float)
    negatives = np.asarray(negatives, dtype=float)
    # Upper limits of the two error rates, each wrong with a probability of alpha / 2.
    false_negative_rate = _rate_above(positives - hits, positives, alpha / 2)
    false_positive_rate = _rate_above(alarms, negatives, alpha / 2)
    # (epsilon, delta) demands 1 - FNR <= e^epsilon FPR + delta, and the same with the rates exchanged.
    from_hits = _log_ratio(1 - false_negative_rate - delta, false_positive_rate)
    from_rejections = _log_ratio(1 - false_positive_rate - delta, false_negative_rate)
    return np.maximum(np.maximum(from_hits, from_rejections), 0)


def one_run_epsilon(correct: int, guesses: int, canaries: int, *, delta: float, alpha: float = ALPHA) -> float:
    """Lower bound of epsilon from guesses of independent fair coins in a single training.

    Under (epsilon, delta) at most a number of guesses with the law ``Bin(guesses, e^epsilon / (1 + e^epsilon))`` is
    right, up to a term in delta. The bound is the largest epsilon that is refuted at level alpha. It assumes nothing of
    the mechanism or of the scores; canaries may share an aggregate, and the attacker may abstain on some.

    References:
        [Steinke23], theorem 5.2.
    """

    def excess(epsilon: float) -> float:
        return alpha - _one_run_p_value(epsilon, correct, guesses, canaries, delta)

    return _largest_refuted(excess)


def one_run_fdp_epsilon(
    correct: ArrayLike, guesses: ArrayLike, canaries: int, *, delta: float, alpha: float = ALPHA
) -> Numbers:
    """Lower bounds ``(A,)`` from guesses of independent fair coins in one training of a Gaussian mechanism.

    The bound is the largest mu for which guesses this good, ``correct (A,)`` of ``guesses (A,)``, refute mu-Gaussian
    privacy, as an epsilon at delta. It assumes that the trade-off curve of the mechanism is a Gaussian one, but nothing
    of the scores.

    References:
        [Mahloujifar25], algorithm 3.
    """
    correct_guesses = np.atleast_1d(np.asarray(correct))
    all_guesses = np.atleast_1d(np.asarray(guesses))
    # Bisection for the largest mu that the guesses refute.
    low = np.zeros(len(correct_guesses))
    # No score reveals a coin better than with an error of 1e-300, which a mu of 80 allows.
    high = np.full(len(correct_guesses), 80.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        refuted = _refutes_gaussian(middle, correct_guesses, all_guesses, canaries, alpha)
        low = np.where(refuted, middle, low)
        high = np.where(refuted, high, middle)
    return epsilon_of_mu(low, delta)


@dataclass(frozen=True)
class GaussianBound:
    """Result of `gaussian_bound`.

    Attributes:
        epsilon: ``(A,)`` lower bound, at least 0; to be used only where the test does not reject.
        p_value: ``(A,)`` of the test that the scores are Gaussian.
    """

    epsilon: Numbers
    p_value: Numbers

    @property
    def valid(self) -> NDArray[np.bool_]:
        """``(A,)`` True where the test of Gaussianity does not reject at `GAUSSIAN_LEVEL`."""
        return self.p_value >= GAUSSIAN_LEVEL


def gaussian_bound(
    agreement: Numbers, sends: Numbers, *, delta: float, draw: ArrayLike = 0.0, alpha: float = ALPHA
) -> GaussianBound:
    """Lower bound of epsilon from scores that are Gaussian with variance 1.

    A canary of T sends at distance m has the score ``N(coin m sqrt(T) / 2, 1)``. The least-squares estimate of m from
    the ``agreement (A, n)`` of score and coin and from ``sends (n,)``, minus its one-sided error, is the bound ``m_L``;
    the epsilon is that of the Gaussian mechanism with ``m_L sqrt(max T)``. A Kolmogorov-Smirnov test checks the law:
    residuals of the fit, to which an independent Gaussian error of the fit is added (by ``draw (A,)`` of N(0, 1)), are
    exactly independent N(0, 1) if the assumption holds.

    References:
        [Dong22].
        M. Nasr and others, [Nasr23].
    """
    weights = np.sqrt(sends)
    precision = math.sqrt(float(np.square(weights).sum()))
    # Least squares: the agreement with w = sqrt(T) has the mean w m / 2 and variance 1, so m / 2 is estimated with a
    # standard deviation of 1 / precision.
    half = agreement @ weights / precision**2
    low = 2 * (half - stats.norm.ppf(1 - alpha) / precision)
    # Residuals of a fit are dependent; a random error of the fit's own law, added to it, makes them independent again.
    repaired = agreement - np.multiply.outer(half - np.asarray(draw) / precision, weights)
    p_value = stats.kstest(repaired, "norm", axis=-1).pvalue
    # A client's mu is that of its T messages together, m sqrt(T): largest for the client that sends most.
    largest_mu = np.maximum(low, 0) * weights.max()
    return GaussianBound(epsilon_of_mu(largest_mu, delta), np.asarray(p_value))


def epsilon_of_mu(mu: ArrayLike, delta: float) -> Numbers:
    """Epsilon of the Gaussian mechanism whose two worlds are ``mu`` standard deviations apart."""
    epsilon: Numbers = np.vectorize(gaussian_epsilon, otypes=[float])(np.square(mu), delta)
    return epsilon


def fixed_threshold(mu: float, canaries: int, *, delta: float, alpha: float = ALPHA) -> float:
    """The threshold with the largest expected Clopper-Pearson bound if scores are ``N(+-mu / 2, 1)``.

    It is a function of what is declared, and half of the canaries are taken to have either coin.
    """
    thresholds = np.linspace(0, mu / 2 + 4, _GRID)[:, None]
    half = canaries // 2
    count = np.arange(half + 1.0)
    # Laws of the number of scores below each threshold, among canaries with either coin.
    misses = np.asarray(stats.binom.pmf(count, half, special.ndtr(-mu / 2 + thresholds)))
    rejections = np.asarray(stats.binom.pmf(count, half, special.ndtr(mu / 2 + thresholds)))
    # E[log(1 - FNR - delta) - log FPR] at the upper limits of the rates. Alarms are what is not rejected, so their law
    # is that of the rejections backwards.
    limit = _rate_above(count, np.full_like(count, half), alpha / 2)
    log_hit_rate = np.log(np.maximum(1 - limit - delta, _SMALLEST))
    expected_bound = misses @ log_hit_rate - rejections[:, ::-1] @ np.log(limit)
    return float(thresholds[int(np.argmax(expected_bound)), 0])


def fixed_abstention(mu: float, canaries: int, *, delta: float, alpha: float = ALPHA) -> float:
    """The absolute score below which to abstain, whose one-run bound is largest if scores are ``N(+-mu / 2, 1)``."""
    # A bound here takes many binomial tails, so the grid is coarser than that of thresholds.
    cutoffs = np.linspace(0, mu / 2 + 2, _GRID // 4)
    # Shares of the canaries whose score is beyond the cutoff, on the side of their coin and on the other one.
    right_shares = special.ndtr(mu / 2 - cutoffs)
    wrong_shares = special.ndtr(-mu / 2 - cutoffs)
    bounds = []
    for right_share, wrong_share in zip(right_shares, wrong_shares, strict=True):
        correct = round(canaries * right_share)
        guesses = round(canaries * (right_share + wrong_share))
        bounds.append(one_run_epsilon(correct, guesses, canaries, delta=delta, alpha=alpha))
    return float(cutoffs[int(np.argmax(bounds))])


def fewest_canaries(delta: float, *, alpha: float = ALPHA) -> int:
    """The smallest even number of canaries whose Clopper-Pearson bound is above 0 if every decision is right."""
    count = 2
    while clopper_pearson_epsilon(count / 2, count / 2, 0, count / 2, delta=delta, alpha=alpha) == 0:
        count += 2
    return count


def canaries_to_show(epsilon: float, share: float, *, delta: float, alpha: float = ALPHA) -> int:
    """The number of canaries with which the expected Gaussian bound of a true `epsilon` is `share` of it.

    The bound in mu is ``mu - 2 z / sqrt(n)``, see `gaussian_bound`.
    """
    mu = math.sqrt(declared_precision(epsilon, delta))
    shown_mu = math.sqrt(declared_precision(share * epsilon, delta))
    # The expected bound is mu - 2 z / sqrt(canaries), see `gaussian_bound` with one send of each canary.
    quantile = float(stats.norm.ppf(1 - alpha))
    return math.ceil((2 * quantile / (mu - shown_mu)) ** 2)


def _rate_above(count: Numbers, trials: Numbers, level: float) -> Numbers:
    """Upper Clopper-Pearson limit of a rate; 1 without trials."""
    # The quantile is not defined where all trials are successes.
    with np.errstate(invalid="ignore"):
        limit = special.betaincinv(count + 1, trials - count, 1 - level)
    return np.where(count < trials, limit, 1.0)


def _log_ratio(above: Numbers, below: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(above > 0, np.log(above) - np.log(below), 0.0)


def _one_run_p_value(epsilon: float, correct: int, guesses: int, canaries: int, delta: float) -> float:
    """Largest probability of so many right guesses under (epsilon, delta)."""
    # P[Bin(r, e^epsilon / (1 + e^epsilon)) >= v] for v right ones of r guesses: the p-value under pure epsilon.
    rate = special.expit(epsilon)
    chance = float(stats.binom.sf(correct - 1, guesses, rate))
    # Theorem 5.2 adds 2 m delta max_i P[v - i <= Bin < v] / i for m canaries.
    i = np.arange(1, correct + 1)
    fewer = np.cumsum(stats.binom.pmf(correct - i, guesses, rate))  # P[v - i <= Bin < v]
    return min(chance + 2 * canaries * delta * float(np.max(fewer / i, initial=0.0)), 1.0)


def _largest_refuted(excess: Callable[[float], float]) -> float:
    """Largest epsilon at which a falling function is positive; 0 if there is none."""
    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-12))


def _refutes_gaussian(
    mu: Numbers, correct: NDArray[Any], guesses: NDArray[Any], canaries: int, alpha: float
) -> NDArray[np.bool_]:
    """``(A,)`` whether so many right guesses have a probability below alpha under mu-Gaussian privacy."""
    # Algorithm 3: r and h start from the tails at level alpha, and go down from i = correct - 1 to 0.
    right_tail = alpha * correct / canaries  # r
    wrong_tail = alpha * (guesses - correct) / canaries  # h
    for i in range(int(correct.max(initial=0)) - 1, -1, -1):
        # The tail of the wrong guesses is at least the trade-off of that of the right ones.
        next_wrong = np.maximum(wrong_tail, special.ndtr(special.ndtri(right_tail) - mu))
        next_right = np.minimum(right_tail + i / np.maximum(guesses - i, 1) * (next_wrong - wrong_tail), 1.0)
        # The audits have different numbers of right guesses: one with fewer starts later.
        running = i < correct
        if bool(running.all()) and bool((next_wrong == wrong_tail).all()):
            break  # nothing changes any more
        right_tail = np.where(running, next_right, right_tail)
        wrong_tail = np.where(running, next_wrong, wrong_tail)
    refuted: NDArray[np.bool_] = right_tail + wrong_tail > guesses / canaries
    return refuted
