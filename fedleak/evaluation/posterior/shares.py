"""Posterior of class shares given estimates of them: Bayes' rule on the vectors of whole counts."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

from fedleak.core.largest_remainders import largest_remainders
from fedleak.evaluation.posterior.count_laws import CountLaw, likeliest_law
from fedleak.evaluation.posterior.count_sums import Floats, Ints, log_total, marginals
from fedleak.evaluation.posterior.gaussian import LEVELS, VectorPosterior
from fedleak.evaluation.posterior.log_odds import folds_of
from fedleak.evaluation.posterior.matching import matched

MOST_EXAMPLES = 1000
"""Examples of a client above which its shares are rounded to parts of so many."""
_FREEDOMS = (2.5, 4.0, 8.0, 1e6)
"""Degrees of freedom of the tails; the last one is the normal law."""
_SCALES = (0.01, 0.02, 0.05, 0.1, *np.linspace(0.2, 1.4, 13).tolist())
"""Scales of the tails, relative to the standard deviation."""
_SHARES = (0.5, 0.9, 0.99)
"""Weights of the histogram of errors."""
_GROWTHS = (0.0, 0.5, 0.9, 0.99, 0.999)
"""Parts of an error's variance that grow with the share: estimates of classes that a client lacks may be exact."""
_GRID = np.linspace(-12, 12, 4801)
"""Points of the histogram, in standard deviations."""
_EXPONENTS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)
"""Powers of the likelihood. The errors of K shares sum to 0, so equal Gaussian ones have the power ``(K - 1) / K``."""
_SUREST = 50.0
"""Largest ratio, in nats, of the likelihoods of two counts of a class: no estimate is surer."""
_ROUNDING = 1e-9
"""Improvement of shares that is an error of rounding."""
_MOST_CELLS = 2**23
"""Largest number of clients times classes times counts that are held at once."""


def share_posterior(
    inferred: Tensor, true: Tensor, grid: Tensor, people: Tensor, *, generator: torch.Generator
) -> VectorPosterior:
    """Posterior of the class counts of clients with N examples each, from estimates of their shares ``(V, K)``.

    An answer is a whole vector n of counts with the sum N, so the mass of shares that sum to 1 is counted once: ``q(n |
    x) = p(n) prod_k f(x_k | n_k)^g / Z``, where Z sums over all such vectors (`count_sums`), and
    ``bits = log2 q(n | x) / p(n)`` at the true counts.

    * p is Dirichlet-multinomial (`fedleak.evaluation.posterior.count_laws`). The bits take the one under which the
      counts of all clients, also of the person, are likeliest: a server that knows this law learns the least. An exact
      estimate has ``q = 1``, so its bits are ``-log2 p(n)``, on average at most the logarithm of the number of vectors
      n, and the entropy of the true law if that is Dirichlet-multinomial.
    * f is the law of an error e of ``x = a t + b + e``, with one slope a for the share t, which is 0 for estimates that
      say nothing; its mean, deviation, growth with t and law are those of other people, in five groups.
    * The power g, 0 to 1, accounts for the dependence of the K errors, which sum to 0: that of the largest probability
      of the true counts of the other groups. It is 0 where estimates help nobody, and the bits are then 0.

    The estimates under ``NAME+prior`` are medians of each share, which have the least absolute error, under a law p of
    other people; an estimate on which this improves by less than two standard errors stays as it is. Coverage is that
    of intervals of each share, with the probability of the true count itself drawn uniformly, so that it is exact for
    whole counts. Clients with more than `MOST_EXAMPLES` have their shares rounded to parts of so many, so their bits
    are those of the rounded shares, which are fewer.

    Arguments are those of `fedleak.evaluation.posterior.gaussian.vector_posterior`, with a grid of ``1 / N``.

    References:
        [Czado09] (coverage of counts); [Silverman86], section 3.4; [Pauli11] (powers of products of marginal
        likelihoods).
    """
    fold = folds_of(people, generator)
    totals = (1 / grid).round().long().clamp(max=MOST_EXAMPLES)
    counts = largest_remainders(true, totals)
    shares = (counts.double() / totals[:, None]).numpy()
    clients = _ClientShares(inferred.numpy(), shares, counts.numpy(), totals.numpy(), people.numpy())
    uniform = torch.rand(true.shape, generator=generator, dtype=torch.float64).numpy()

    # Law of the errors for each group, from the other groups; p is that of everybody.
    groups = [(fold == number).numpy() for number in torch.unique(fold).tolist()]
    errors = [_Errors.of(clients.inferred[~group], shares[~group]) for group in groups]
    of_everybody = likeliest_law(clients.counts, clients.people)

    # Bits at each power, of each person by the errors of other people.
    gains = np.zeros((len(shares), len(_EXPONENTS)))
    for group, law in zip(groups, errors, strict=True):
        for rows in clients.chunks(group):
            gains[rows] = clients.gains(rows, of_everybody, law)

    bits = np.zeros(len(shares))
    fits = np.zeros((len(shares), len(shares)))
    prior = np.zeros_like(shares)
    median = np.zeros_like(shares)
    covered = np.zeros((len(shares), len(LEVELS)))
    for group, law in zip(groups, errors, strict=True):
        # The power g with the most bits in the other groups.
        best_power = int(gains[~group].mean(0).argmax())
        exponent = _EXPONENTS[best_power]
        bits[group] = gains[group, best_power]
        # Medians are by the counts of other people, as an estimate must not know the person's own.
        of_other_people = likeliest_law(clients.counts[~group], clients.people[~group])
        for rows in clients.chunks(group):
            fits[rows] = exponent * clients.fits(rows, law)
            prior[rows], _ = clients.medians(rows, of_other_people, law, 0.0, uniform[rows])
            median[rows], covered[rows] = clients.medians(rows, of_other_people, law, exponent, uniform[rows])

    # An estimate stays unless medians improve those of the other groups by two standard errors.
    mean = median.copy()
    improvement = np.abs(clients.inferred - true.numpy()).mean(1) - np.abs(median - true.numpy()).mean(1)
    for group in groups:
        of_rest = improvement[~group]
        if of_rest.mean() <= max(2 * of_rest.std(ddof=1) / math.sqrt(len(of_rest)), _ROUNDING):
            mean[group] = clients.inferred[group]
    before = -of_everybody.log_probability(clients.counts) / math.log(2)
    # The server knows the number of examples, so that only clients with as many are compared.
    matches = matched(torch.from_numpy(fits), (1 / grid).round())
    return VectorPosterior(
        prior=torch.from_numpy(prior),
        mean=torch.from_numpy(mean),
        bits=torch.from_numpy(bits),
        covered=torch.from_numpy(covered),
        left=torch.from_numpy(before - bits),
        matches=matches,
    )


@dataclass(frozen=True)
class _ClientShares:
    """Estimates and true shares ``(V, K)``, the counts behind them, their totals ``(V,)``, and numbers of people."""

    inferred: Floats
    shares: Floats
    counts: Ints
    totals: Ints
    people: Ints

    def chunks(self, group: NDArray[np.bool_]) -> list[Ints]:
        """Numbers of the rows of a group, in parts that fit in memory."""
        rows = group.nonzero()[0]
        cells = self.shares.shape[1] * (int(self.totals.max()) + 1)
        parts = -(-len(rows) * cells // _MOST_CELLS)
        return np.array_split(rows, max(parts, 1))

    def gains(self, rows: Ints, law: CountLaw, errors: "_Errors") -> Floats:
        """``(R, G)`` bits of some rows at each of `_EXPONENTS`."""
        totals = self.totals[rows]
        weights = law.log_weights(totals)
        likelihood = self._log_likelihood(rows, errors)
        # log2 q(n | x) / p(n) = g log f(x | n) + log sum p - log sum p f^g, at the true counts n.
        of_truth = np.take_along_axis(likelihood, self.counts[rows][..., None], 2)[..., 0].sum(1)
        log_prior_sum = log_total(weights, totals)
        gains = np.zeros((len(rows), len(_EXPONENTS)))
        for number, exponent in enumerate(_EXPONENTS):
            if exponent > 0 and errors.slope:
                log_posterior_sum = log_total(weights + exponent * likelihood, totals)
                gains[:, number] = (exponent * of_truth + log_prior_sum - log_posterior_sum) / math.log(2)
        return gains

    def fits(self, rows: Ints, errors: "_Errors") -> Floats:
        """``(R, V)`` log-likelihood of the estimates of some rows under the shares of everybody."""
        shares = np.ascontiguousarray(self.shares.T)[None]
        of_rows = []
        for row in rows:
            of_rows.append(errors.log_likelihood(self.inferred[row][None], shares).sum(1))
        return np.concatenate(of_rows)

    def medians(
        self, rows: Ints, law: CountLaw, errors: "_Errors", exponent: float, uniform: Floats
    ) -> tuple[Floats, Floats]:
        """Medians ``(R, K)`` of each share, and shares ``(R, 9)`` of the classes inside intervals of `LEVELS`."""
        weights = law.log_weights(self.totals[rows])
        if exponent > 0:
            weights = weights + exponent * self._log_likelihood(rows, errors)
        chances = marginals(weights, self.totals[rows])
        below = chances.cumsum(2)
        # The smallest count with P(n_k <= count) of at least 1/2.
        median = (below < 0.5).sum(2)
        # P(n_k < true) + u P(n_k = true) is uniform if the law is right, so it is in the central interval of
        # probability L with the probability L.
        true_counts = self.counts[rows][..., None]
        of_truth = np.take_along_axis(chances, true_counts, 2)[..., 0]
        position = np.take_along_axis(below, true_counts, 2)[..., 0] - uniform * of_truth
        inside = np.abs(2 * position - 1)[..., None] <= LEVELS.numpy()
        return median / self.totals[rows][:, None], inside.mean(1)

    def _log_likelihood(self, rows: Ints, errors: "_Errors") -> Floats:
        """``(R, K, J)`` log-likelihoods of the counts 0 to the largest total, at least `_SUREST` below the highest."""
        shares = np.arange(int(self.totals[rows].max()) + 1) / self.totals[rows][:, None]
        logs = errors.log_likelihood(self.inferred[rows], shares[:, None])
        cut: Floats = np.maximum(logs - logs.max(2, keepdims=True), -_SUREST)
        return cut


@dataclass(frozen=True)
class _Law:
    """Law of standardised errors: a mixture of Student's law and of a smoothed histogram, which may be skew.

    Attributes:
        freedom, scale: Student's law of largest likelihood, of a few.
        share: weight of the histogram, 0 for none: that of largest likelihood where each number is left out itself.
        density: ``(P,)`` of the histogram at `_GRID`, smoothed.
    """

    freedom: float
    scale: float
    share: float
    density: Floats

    @classmethod
    def of(cls, errors: Floats) -> "_Law":
        """The law of standardised errors of any shape."""
        """The law of standardised errors of any shape."""
        values = errors.ravel()
        # Student's law of largest likelihood; the first of equal ones.
        laws = [(freedom, scale) for freedom in _FREEDOMS for scale in _SCALES]
        freedom, scale = max(laws, key=lambda law: float(stats.t.logpdf(values, law[0], scale=law[1]).sum()))
        student = stats.t.pdf(values, freedom, scale=scale)
        # Smoothed to the width of Silverman's rule, 0.9 min(deviation, IQR / 1.34) n^(-1/5), at least to that of a bin.
        step = _GRID[1] - _GRID[0]
        count = len(values)
        edges = np.append(_GRID - step / 2, _GRID[-1] + step / 2)
        in_bins = np.histogram(values, bins=edges)[0]
        width = max(0.9 * min(values.std(), stats.iqr(values) / 1.34) * count**-0.2, step)
        density = gaussian_filter1d(in_bins / (count * step), width / step, mode="constant")
        # An error says nothing of its own density: without it, (n f(x) - kernel(0)) / (n - 1).
        of_itself = 1 / (width * math.sqrt(2 * math.pi))
        of_rest = (count * np.interp(values, _GRID, density) - of_itself).clip(min=0) / (count - 1)
        # Weight of the histogram of largest likelihood, 0 (Student's law alone) among them.
        best = float(np.log(student).sum())
        law = cls(freedom, scale, 0.0, density)
        for share in _SHARES:
            likelihood = float(np.log(share * of_rest + (1 - share) * student).sum())
            if likelihood > best:
                best = likelihood
                law = cls(freedom, scale, share, density)
        return law

    def log_density(self, values: Floats) -> Floats:
        # log((1 - share) student + share histogram)
        # log((1 - share) student + share histogram)
        log_student = stats.t.logpdf(values, self.freedom, scale=self.scale)
        student: Floats = log_student + math.log1p(-self.share)
        if self.share == 0:
            return student
        smoothed = self.share * np.interp(values, _GRID, self.density, left=0.0, right=0.0)
        mixed: Floats = np.logaddexp(student, np.log(smoothed + 1e-300))
        return mixed


@dataclass(frozen=True)
class _Errors:
    """What other people's shares and estimates teach of errors: means and deviations ``(K,)``, growth and law."""

    slope: float
    offset: Floats
    deviation: Floats
    growth: float
    law: _Law

    @classmethod
    def of(cls, inferred: Floats, true: Floats) -> "_Errors":
        """The errors of estimates ``(V, K)`` of shares."""
        # Slope a of x = a t + b + e by least squares.
        apart = true - true.mean(0)
        squares = max(float((apart**2).sum()), 1e-30)
        slope = float((apart * (inferred - inferred.mean(0))).sum()) / squares
        # Drawn towards 0 by its variance over people (James and Stein).
        of_people = (apart * (inferred - inferred.mean(0) - slope * apart)).sum(1) / squares
        slope *= max(0.0, 1 - float((of_people**2).sum()) / max(slope**2, 1e-30))
        residuals = inferred - slope * true
        offset = residuals.mean(0)
        # Deviations stay above 0 where all errors of a class are equal.
        base = _deviation(residuals - offset) + 1e-9 * _deviation(apart)
        # The growth of largest likelihood; of equal ones the smallest.
        candidates = []
        for growth in _GROWTHS:
            deviation = base * _relative(true, growth)
            standardised = (residuals - offset) / deviation
            law = _Law.of(standardised)
            likelihood = float((law.log_density(standardised) - np.log(deviation)).sum())
            candidates.append((likelihood, -growth, law))
        _, negative_growth, law = max(candidates, key=lambda candidate: candidate[:2])
        return cls(slope, offset, base, -negative_growth, law)

    def log_likelihood(self, inferred: Floats, shares: Floats) -> Floats:
        """``(V, K, J)`` of estimates ``(V, K)``, if a share is one of ``(V, 1 or K, J)``."""
        # log f(x_k | t) = log density((x_k - a t - b_k) / deviation) - log deviation
        deviation = self.deviation[:, None] * _relative(shares, self.growth)
        residuals = inferred[..., None] - self.slope * shares - self.offset[:, None]
        density: Floats = self.law.log_density(residuals / deviation) - np.log(deviation)
        return density


def _relative(shares: Floats, growth: float) -> Floats:
    """Deviation of errors relative to that at a share of 1/2, where a part of the variance grows with the share."""
    relative: Floats = np.sqrt(1 - growth + growth * 2 * shares.clip(0.0, 1.0))
    return relative


def _deviation(apart: Floats) -> Floats:
    """``(K,)`` root mean squares of numbers ``(V, K)``, drawn halfway towards the mean of all."""
    squares = (apart**2).mean(0)
    drawn: Floats = np.sqrt((squares + squares.mean()) / 2) + 1e-15
    return drawn
