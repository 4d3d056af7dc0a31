"""Posterior of vectors of numbers given estimates of them: mean and covariance of a Gaussian, with Student's tails."""

import math
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

from fedleak.evaluation.posterior.log_odds import folds_of
from fedleak.evaluation.posterior.matching import Matches

LEVELS = torch.arange(1, 10, dtype=torch.float64) / 10
"""Probabilities of the central intervals whose coverage is measured."""
_FREEDOMS = (2.5, 4.0, 8.0, 1e6)
"""Degrees of freedom of the tails; the last one is the normal law."""
_SCALES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4)
"""Scales of the tails, relative to the covariance."""


@dataclass(frozen=True)
class VectorPosterior:
    """What is known of each person's vector before and after the estimate.

    Attributes:
        prior: ``(V, K)`` what is likeliest by the other people's vectors: their mean, or the median of each number.
        mean: ``(V, K)`` posterior mean, or median.
        bits: ``(V,)`` logarithm to base 2 of the posterior density of the true vector over the prior density.
        covered: ``(V, 9)`` share of a person's numbers inside their central intervals of probability 0.1 to 0.9.
        left: ``(V,)`` bits that remain unknown, of vectors with a finite number of values; None for others.
        matches: people whose estimate fits their own vector best among those that the server cannot distinguish
            beforehand; None for no such vectors.
    """

    prior: Tensor
    mean: Tensor
    bits: Tensor
    covered: Tensor
    left: Tensor | None = None
    matches: Matches | None = None

    @property
    def calibration_error(self) -> float:
        """Mean distance between the coverage of the central intervals and their probabilities."""
        return float((self.covered.mean(0) - LEVELS).abs().mean())


def vector_posterior(
    inferred: Tensor, true: Tensor, grid: Tensor, people: Tensor, *, generator: torch.Generator
) -> VectorPosterior:
    """Posterior of vectors ``(V, K)``, linear in their estimates.

    An estimate is ``x = a t + b + e`` of the vector t, with one slope a, which is 0 for estimates that say nothing.
    With mean m and covariance P of the vectors, and covariance S of e, the posterior has the mean ``m + G (x - b - a
    m)`` and the covariance ``P - a G P``, where ``G = a P (a^2 P + S)^-1``; both laws have Student's tails. An estimate
    whose mean absolute error is smaller than that of this mean stays as it is. All are those of other people, in five
    groups: m is drawn towards one number by James and Stein's rule, covariances by Ledoit and Wolf's. Vectors on a grid
    are moved at random within their cells of width g, so that an exact estimate has at most the density ``1 / g`` of a
    cell, and adds a finite number of bits (dequantisation).

    Args:
        inferred: estimates.
        true: the vectors.
        grid: ``(V,)`` distance of neighbouring possible values; 0 for none.
        people: ``(V,)`` number of the person.
        generator: source of the groups.

    References:
        [Kay93], theorem 10.3; [James61]; [Ledoit04]; Theis, van den [Oord16], section 3.1 (dequantisation).
    """
    fold = folds_of(people, generator)
    # A vector on a grid lies anywhere within its cell (dequantisation).
    true = true + (torch.rand(true.shape, generator=generator, dtype=torch.float64) - 0.5) * grid[:, None]
    eye = torch.eye(true.shape[1], dtype=torch.float64)
    prior = torch.zeros_like(true)
    mean = torch.zeros_like(true)
    bits = torch.zeros(len(true), dtype=torch.float64)
    covered = torch.zeros(len(true), len(LEVELS), dtype=torch.float64)
    for number in torch.unique(fold).tolist():
        in_fold = fold == number
        train = fold != number
        # Mean m and covariance P of the vectors of other people.
        centre = shrunk_mean(true[train])
        covariance = _covariance(true[train])
        # Slope a of x = a t + b + e by least squares, and covariance S of e.
        apart = true[train] - centre
        mean_estimate = inferred[train].mean(0)
        slope = float((apart * (inferred[train] - mean_estimate)).sum() / apart.square().sum().clamp(min=1e-30))
        noise = _covariance(inferred[train] - slope * true[train])
        # Added to diagonals: covariances of shares, which sum to 1, are singular.
        jitter = (float(covariance.diagonal().mean()) * 1e-9 + 1e-15) * eye
        # G = a P (a^2 P + S)^-1, posterior covariance P - a G P and mean m + G (x - mean of x).
        gain = torch.linalg.solve(slope**2 * covariance + noise + jitter, slope * covariance).T
        remaining = covariance - slope * gain @ covariance
        posterior_mean = centre + (inferred - mean_estimate) @ gain.T
        error_of_estimate = float((inferred[train] - true[train]).abs().mean())
        error_of_posterior = float((posterior_mean[train] - true[train]).abs().mean())
        # An estimate that is mostly exact, with few large errors, is better than any linear function of it.
        if error_of_estimate < error_of_posterior:
            posterior_mean = inferred
            remaining = _covariance(inferred[train] - true[train])
        prior[in_fold] = centre
        mean[in_fold] = posterior_mean[in_fold]
        # Bits are the logarithm of the posterior density of the true vector over the prior one.
        after, covered[in_fold] = _density(true - posterior_mean, remaining, jitter, train, in_fold)
        before, _ = _density(true - centre.expand_as(posterior_mean), covariance, jitter, train, in_fold)
        bits[in_fold] = (after - before) / math.log(2)
    return VectorPosterior(prior, mean, bits, covered)


def _density(
    errors: Tensor, covariance: Tensor, jitter: Tensor, train: Tensor, in_fold: Tensor
) -> tuple[Tensor, Tensor]:
    """Log densities ``(F,)`` of the errors of a fold ``(V, K)``, and the coverage ``(F, 9)`` of central intervals.

    Errors that are made white by the covariance have Student's tails, fitted on those of other people.
    """
    root = torch.linalg.cholesky((covariance + covariance.T) / 2 + jitter)
    white = torch.linalg.solve_triangular(root, errors.T, upper=False).T
    tails = _Tails.of(white[train])
    # log p(e) = log p(L^-1 e) - log det L
    log_density = tails.log_density(white[in_fold]) - root.diagonal().log().sum()
    covered = (white[in_fold].abs()[..., None] <= tails.half_widths()).double().mean(1)
    return log_density, covered


def _covariance(rows: Tensor) -> Tensor:
    """``(K, K)`` shrunk covariance of rows ``(N, K)``."""
    from sklearn.covariance import ledoit_wolf  # slow to import

    return torch.from_numpy(ledoit_wolf((rows - rows.mean(0)).numpy(), assume_centered=True)[0])


def shrunk_mean(rows: Tensor) -> Tensor:
    """``(K,)`` mean of rows ``(N, K)``, drawn towards that of all numbers by the rule of James and Stein."""
    mean = rows.mean(0)
    numbers = rows.shape[1]
    apart = mean - mean.mean()
    # James and Stein: m + max(0, 1 - (K - 3) s^2 / |apart|^2) apart, where s^2 is the variance of a mean.
    error = float(rows.var(0).mean()) / len(rows)
    factor = 1 - max(numbers - 3, 0) * error / max(float(apart.square().sum()), 1e-30)
    return mean.mean() + max(factor, 0.0) * apart


@dataclass(frozen=True)
class _Tails:
    """Student's law of independent numbers: degrees of freedom and scale of largest likelihood, of a few values."""

    freedom: float
    scale: float

    @classmethod
    def of(cls, white: Tensor) -> "_Tails":
        laws = [cls(freedom, scale) for freedom in _FREEDOMS for scale in _SCALES]
        return max(laws, key=lambda law: float(law.log_density(white).sum()))

    def log_density(self, white: Tensor) -> Tensor:
        """``(V,)`` log density of white numbers ``(V, K)``."""
        scaled = torch.from_numpy(stats.t.logpdf(white.numpy(), self.freedom, scale=self.scale))
        return scaled.sum(1)

    def half_widths(self) -> Tensor:
        """``(9,)`` half-widths of the central intervals."""
        return torch.from_numpy(stats.t.ppf((1 + LEVELS.numpy()) / 2, self.freedom, scale=self.scale))
