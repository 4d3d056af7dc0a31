"""Posterior of shares given estimates of them: Bayes' rule number by number, for laws that may be skew."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

from evaluation.posterior.gaussian import LEVELS, VectorPosterior, shrunk_mean
from evaluation.posterior.log_odds import folds_of

_FREEDOMS = (2.5, 4.0, 8.0, 1e6)
"""Degrees of freedom of the tails; the last one is the normal law."""
_SCALES = (0.01, 0.02, 0.05, 0.1, *np.linspace(0.2, 1.4, 13).tolist())
"""Scales of the tails, relative to the standard deviation."""
_SHARES = (0.5, 0.9, 0.99)
"""Weights of the histogram."""
_WIDTHS = (1.0, 0.3, 0.1)
"""Widths to which the histogram is smoothed, relative to Silverman's rule; that of errors, by the first one."""
_GROWTHS = (0.0, 0.5, 0.9, 0.99, 0.999)
"""Parts of an error's variance that grow with the share: estimates of classes that a client lacks may be exact."""
_PLACES = np.linspace(-12, 12, 4801)
"""Places of the histogram, in standard deviations."""
_FAR = 10.0 ** -np.arange(9, 2, -1)
_QUANTILES = np.concatenate([_FAR, np.linspace(0.005, 0.995, 199), 1 - _FAR])
"""Probabilities at whose quantiles densities are integrated."""
_MOST_CELLS = 2**23


def share_posterior(
    inferred: Tensor, true: Tensor, grid: Tensor, people: Tensor, *, generator: torch.Generator
) -> VectorPosterior:
    """Posterior of shares ``(V, K)``, each by itself.

    An estimate is ``x = a t + b + e`` of the share t, with one slope a, which is 0 for estimates that say nothing. Laws
    of t and of e are learned from other people, in five groups: mean and deviation of each number, one law of all
    standardised numbers (`_Law`), and how the variance of e grows with t. The posterior density, proportional to their
    product, is integrated by the trapezoidal rule between quantiles of both. The estimate is its median, which has the
    least absolute error, and so is that of the prior; an estimate on which this improves by less than two standard
    errors stays as it is, with the same bits. Shares are moved at random within their cells of width g, as in
    `evaluation.posterior.gaussian.vector_posterior`, which has the arguments.

    A class that a client lacks has a share of exactly 0, and no Gaussian has such a point: on class shares of MNIST
    under noise, the coverage of intervals of Gaussian posteriors was wrong by up to 0.08.

    References:
        Silverman, "Density Estimation for Statistics and Data Analysis", 1986, section 3.4.
    """
    fold = folds_of(people, generator)
    exact, true = true, true + (torch.rand(true.shape, generator=generator, dtype=torch.float64) - 0.5) * grid[:, None]
    prior, mean, bits = torch.zeros_like(true), torch.zeros_like(true), torch.zeros(len(true), dtype=torch.float64)
    covered = torch.zeros(len(true), len(LEVELS), dtype=torch.float64)
    for number in torch.unique(fold).tolist():
        own, train = (fold == number).nonzero().flatten(), fold != number
        model = _Model.of(inferred[train].numpy(), true[train].numpy(), shrunk_mean(true[train]).numpy())
        guess = torch.cat([median for _, median, *_ in model.posteriors(inferred[train], true[train])])
        errors = [(one - exact[train]).abs().mean(1) for one in (inferred[train], guess)]
        better = errors[0] - errors[1]
        kept = float(better.mean()) <= 2 * float(better.std()) / math.sqrt(len(better))
        of_own = model.posteriors(inferred[own], true[own])
        before, after, gained, below = (torch.cat(part) for part in zip(*of_own, strict=True))
        prior[own], bits[own] = before, gained
        mean[own] = inferred[own] if kept else after
        covered[own] = ((2 * below - 1).abs()[..., None] <= LEVELS).double().mean(1)
    return VectorPosterior(prior, mean, bits, covered)


@dataclass(frozen=True)
class _Law:
    """Law of standardised numbers: a mixture of Student's law and of a smoothed histogram, which may be skew.

    Attributes:
        freedom, scale: Student's law of largest likelihood, of a few.
        share: weight of the histogram, 0 for none: that of largest likelihood where each number is left out itself.
        density: ``(P,)`` of the histogram at `_PLACES`, smoothed.
        quantiles: of the numbers at `_QUANTILES`, and of Student's law.
    """

    freedom: float
    scale: float
    share: float
    density: np.ndarray
    quantiles: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray, widths: Sequence[float]) -> "_Law":
        values = numbers.ravel()
        freedom, scale = max(
            ((freedom, scale) for freedom in _FREEDOMS for scale in _SCALES),
            key=lambda law: float(stats.t.logpdf(values, law[0], scale=law[1]).sum()),
        )
        of_student = stats.t.ppf(_QUANTILES, freedom, scale=scale)
        places = np.concatenate([np.quantile(values, _QUANTILES), of_student])
        student = stats.t.pdf(values, freedom, scale=scale)
        best, found = float(np.log(student).sum()), cls(freedom, scale, 0.0, np.zeros(len(_PLACES)), places)
        step, count = _PLACES[1] - _PLACES[0], len(values)
        counts = np.histogram(values, bins=np.append(_PLACES - step / 2, _PLACES[-1] + step / 2))[0]
        silverman = 0.9 * min(values.std(), stats.iqr(values) / 1.34) * count**-0.2
        for width in (max(silverman * part, step) for part in widths):
            density = gaussian_filter1d(counts / (count * step), width / step, mode="constant")
            own = 1 / (width * math.sqrt(2 * math.pi))  # a number says nothing of its own density
            others = (count * np.interp(values, _PLACES, density) - own).clip(min=0) / (count - 1)
            for share in _SHARES:
                likelihood = float(np.log(share * others + (1 - share) * student).sum())
                if likelihood > best:
                    best, found = likelihood, cls(freedom, scale, share, density, places)
        return found

    def log_density(self, values: np.ndarray) -> np.ndarray:
        student: np.ndarray = stats.t.logpdf(values, self.freedom, scale=self.scale) + math.log1p(-self.share)
        if self.share == 0:
            return student
        known = self.share * np.interp(values, _PLACES, self.density, left=0.0, right=0.0)
        mixed: np.ndarray = np.logaddexp(student, np.log(known + 1e-300))
        return mixed


@dataclass(frozen=True)
class _Model:
    """What other people's shares and estimates teach: means and deviations ``(K,)`` of shares and errors, and laws."""

    slope: float
    centre: np.ndarray
    spread: np.ndarray
    offset: np.ndarray
    error: np.ndarray
    growth: float
    shares: _Law
    errors: _Law

    @classmethod
    def of(cls, inferred: np.ndarray, true: np.ndarray, centre: np.ndarray) -> "_Model":
        apart = true - centre
        squares = max(float((apart**2).sum()), 1e-30)
        slope = float((apart * (inferred - inferred.mean(0))).sum()) / squares
        slopes = (apart * (inferred - inferred.mean(0) - slope * apart)).sum(1) / squares  # of people
        slope *= max(0.0, 1 - float((slopes**2).sum()) / max(slope**2, 1e-30))
        left = inferred - slope * true
        offset, spread = left.mean(0), _deviation(apart)
        base = _deviation(left - offset) + 1e-9 * spread
        parts = []
        for growth in _GROWTHS:
            error = base * _relative(true, growth)
            law = _Law.of((left - offset) / error, _WIDTHS[:1])
            likelihood = float((law.log_density((left - offset) / error) - np.log(error)).sum())
            parts.append((likelihood, -growth, law))
        _, growth, law = max(parts, key=lambda part: part[:2])
        return cls(slope, centre, spread, offset, base, -growth, _Law.of(apart / spread, _WIDTHS), law)

    def posteriors(self, inferred: Tensor, true: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Of chunks of people: medians of prior and posterior, bits ``(V,)``, probability of less than the truth."""
        places = 2 * (len(self.shares.quantiles) + len(self.errors.quantiles))
        chunk = max(1, _MOST_CELLS // (true.shape[1] * places))
        for start in range(0, len(true), chunk):
            x, t = (values[start : start + chunk].numpy()[..., None] for values in (inferred, true))
            yield self._posterior(x, t)

    def _posterior(self, x: np.ndarray, t: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        known = self.centre[:, None] + self.spread[:, None] * self.shares.quantiles
        places = [np.broadcast_to(known, (*x.shape[:2], known.shape[-1])), t]
        if self.slope:
            scale = self.error[:, None] * _relative(x, self.growth)
            errors = self.offset[:, None] + scale * self.errors.quantiles
            places.append((x - errors) / self.slope)
        points = np.sort(np.concatenate(places, axis=2), axis=2)
        logs = self._log_likelihood(x, points)
        highest = logs.max(2, keepdims=True)
        before = self._prior(points)
        after = before * np.exp(logs - highest)
        mass, known = (np.diff(points, axis=2) * (law[..., 1:] + law[..., :-1]) / 2 for law in (after, before))
        whole, before_all = (np.maximum(part.sum(2), 1e-300) for part in (mass, known))
        below = (mass * (points[..., 1:] <= t)).sum(2) / whole
        gained = ((self._log_likelihood(x, t) - highest)[..., 0] + np.log(before_all / whole)).sum(1) / math.log(2)
        before_it, after_it = (torch.from_numpy(_median(points, law)) for law in (known, mass))
        return before_it, after_it, torch.from_numpy(gained), torch.from_numpy(below)

    def _prior(self, t: np.ndarray) -> np.ndarray:
        """Density relative to the deviation."""
        density: np.ndarray = np.exp(self.shares.log_density((t - self.centre[:, None]) / self.spread[:, None]))
        return density

    def _log_likelihood(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        scale = self.error[:, None] * _relative(t, self.growth)
        left = x - self.slope * t - self.offset[:, None]
        density: np.ndarray = self.errors.log_density(left / scale) - np.log(scale)
        return density


def _relative(shares: np.ndarray, growth: float) -> np.ndarray:
    """Deviation of errors relative to that at a share of 1/2, where a part of the variance grows with the share."""
    relative: np.ndarray = np.sqrt(1 - growth + growth * 2 * shares.clip(0.0, 1.0))
    return relative


def _median(points: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """``(V, K)`` medians of laws with this mass ``(V, K, P - 1)`` between points ``(V, K, P)``."""
    half = (mass.cumsum(2) < mass.sum(2, keepdims=True) / 2).sum(2, keepdims=True)
    middles: np.ndarray = np.take_along_axis(points, half, 2)[..., 0]
    return middles


def _deviation(apart: np.ndarray) -> np.ndarray:
    """``(K,)`` root mean squares of numbers ``(V, K)``, drawn halfway towards the mean of all."""
    squares = (apart**2).mean(0)
    drawn: np.ndarray = np.sqrt((squares + squares.mean()) / 2) + 1e-15
    return drawn
