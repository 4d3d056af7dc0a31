"""Posterior of vectors of numbers given estimates of them: Gaussian, its moments fitted on other people."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evaluation.posterior.log_odds import folds_of

_LEVELS = torch.arange(1, 10, dtype=torch.float64) / 10
"""Probabilities of the central intervals whose coverage is measured."""


@dataclass(frozen=True)
class VectorPosterior:
    """What is known of each person's vector before and after the estimate.

    Attributes:
        prior: ``(V, K)`` mean of the other people's vectors.
        mean: ``(V, K)`` posterior mean.
        bits: ``(V,)`` logarithm to base 2 of the posterior density of the true vector over the prior density.
        covered: ``(V, 9)`` share of a person's numbers inside their central intervals of probability 0.1 to 0.9.
    """

    prior: Tensor
    mean: Tensor
    bits: Tensor
    covered: Tensor

    @property
    def calibration_error(self) -> float:
        """Mean distance between the coverage of the central intervals and their probabilities."""
        return float((self.covered.mean(0) - _LEVELS).abs().mean())


def vector_posterior(
    inferred: Tensor, true: Tensor, grid: Tensor, people: Tensor, *, generator: torch.Generator
) -> VectorPosterior:
    """Posterior of vectors ``(V, K)`` if they and the errors of their estimates are Gaussian.

    An estimate is ``x = a t + b + e`` of the vector t, with one slope a, which is 0 for estimates that say nothing.
    With mean m and covariance P of the vectors, and covariance S of e, the posterior has the mean ``m + G (x - b - a
    m)`` and the covariance ``P - a G P``, where ``G = a P (a^2 P + S)^-1``. All five are those of other people, in five
    groups; covariances are shrunk by Ledoit and Wolf's rule. Vectors on a grid of width g have a further variance of
    ``g^2 / (2 pi)``, with which an exact estimate has the density ``1 / g`` of a cell of the grid, and so adds a finite
    number of bits; for the coverage, a value is anywhere in its cell.

    Args:
        inferred: estimates.
        true: the vectors.
        grid: ``(V,)`` distance of neighbouring possible values; 0 for none.
        people: ``(V,)`` number of the person.
        generator: source of the groups.

    References:
        Kay, "Fundamentals of Statistical Signal Processing: Estimation Theory", 1993, theorem 10.3; Ledoit and Wolf, "A
        well-conditioned estimator for large-dimensional covariance matrices", 2004.
    """
    fold = folds_of(people, generator)
    eye = torch.eye(true.shape[1], dtype=torch.float64)
    prior, mean = torch.zeros_like(true), torch.zeros_like(true)
    bits = torch.zeros(len(true), dtype=torch.float64)
    covered = torch.zeros(len(true), len(_LEVELS), dtype=torch.float64)
    half = torch.special.ndtri((1 + _LEVELS) / 2)
    for number in torch.unique(fold).tolist():
        own, train = fold == number, fold != number
        centre, spread = true[train].mean(0), _covariance(true[train])
        apart, middle = true[train] - centre, inferred[train].mean(0)
        slope = float((apart * (inferred[train] - middle)).sum() / apart.square().sum().clamp(min=1e-30))
        noise = _covariance(inferred[train] - slope * true[train])
        small = float(spread.diagonal().mean()) * 1e-9 + 1e-15
        gain = torch.linalg.solve(slope**2 * spread + noise + small * eye, slope * spread).T
        prior[own] = centre
        mean[own] = centre + (inferred[own] - middle) @ gain.T
        left = spread - slope * gain @ spread
        rounding = (grid[own].square() / (2 * math.pi) + small)[:, None, None] * eye
        after = _log_density(true[own] - mean[own], left + rounding)
        bits[own] = (after - _log_density(true[own] - centre, spread + rounding)) / math.log(2)
        deviation = (left + rounding).diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
        inside = (torch.rand(true[own].shape, generator=generator, dtype=torch.float64) - 0.5) * grid[own, None]
        off = (true[own] + inside - mean[own]).abs() / deviation
        covered[own] = (off[..., None] <= half).double().mean(1)
    return VectorPosterior(prior, mean, bits, covered)


def _covariance(rows: Tensor) -> Tensor:
    """``(K, K)`` shrunk covariance of rows ``(N, K)``."""
    from sklearn.covariance import ledoit_wolf  # slow to import

    return torch.from_numpy(ledoit_wolf((rows - rows.mean(0)).numpy(), assume_centered=True)[0])


def _log_density(gaps: Tensor, covariance: Tensor) -> Tensor:
    """``(V,)`` log density of N(0, covariance ``(V, K, K)``) at gaps ``(V, K)``."""
    symmetric = (covariance + covariance.transpose(1, 2)) / 2
    root = torch.linalg.cholesky(symmetric)
    white = torch.linalg.solve_triangular(root, gaps[..., None], upper=False).squeeze(-1)
    logs = root.diagonal(dim1=1, dim2=2).log().sum(1)
    density: Tensor = -white.square().sum(1) / 2 - logs - gaps.shape[1] / 2 * math.log(2 * math.pi)
    return density
