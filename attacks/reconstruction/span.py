"""Row space of a layer's change, and how far candidates for the layer's inputs lie outside it."""

import math
from dataclasses import dataclass

import torch
from scipy.stats import beta, chi2
from torch import Tensor

from fedleak.attacks.linear_algebra import along_and_outside, row_space

_EDGE = 1.5
"""Singular values count as signal above so many times the largest of pure noise."""
_EXACT = 8 * torch.finfo(torch.float32).eps
"""Relative error of inputs that a client computes in single precision."""


@dataclass(frozen=True)
class Span:
    """Row space of a change ``(M, D)`` in noise of standard deviation s.

    If z lies in the row space, its distance from the estimated one is due to the noise alone. Its square is then
    ``s^2 k chi^2`` with D - R degrees of freedom and ``k = sum_i (z v_i)^2 / sigma_i^2``, for singular values sigma_i
    and right singular vectors v_i (first-order perturbation).

    Attributes:
        basis: ``(R, D)`` right singular vectors.
        values: ``(R,)`` singular values.
        noise: the standard deviation s.
        edge: singular values below it are lost in the noise.
        drift: relative error of the inputs, which then decides instead of the noise; 0 for one step.
    """

    basis: Tensor
    values: Tensor
    noise: float
    edge: float
    drift: float

    @property
    def rank(self) -> int:
        """Number of singular values above the noise."""
        return len(self.basis)

    @property
    def free(self) -> int:
        """Dimensions outside the span, in which a wrong candidate is visible."""
        return self.basis.shape[1] - self.rank

    def excess(self, left: Tensor, right: Tensor, *, missed: float) -> Tensor:
        """``(A, B)`` squared distance of each sum of ``left (A, D)`` and ``right (B, D)``, over what is accepted.

        Noise pushes a true input above 1 with the probability `missed`.
        """
        along_left, outside_left = along_and_outside(left, self.basis)
        along_right, outside_right = along_and_outside(right, self.basis)
        quantile = float(chi2.isf(missed, max(self.free, 1)))
        allowed = max(self.drift, _EXACT) ** 2 * _squares(left, right)
        if not self.drift:
            # By how much noise of variance 1 in the change moves each sum out of the span.
            moved = _squares(along_left / self.values, along_right / self.values)
            allowed = allowed + max(self.noise**2 * quantile, self.edge**2) * moved
        return _squares(outside_left, outside_right).clamp(min=0) / allowed.clamp(min=1e-300)

    def false_acceptance(self, allowed: float) -> float:
        """Probability that a random direction is accepted, if a relative distance ``allowed`` is."""
        return float(beta.cdf(min(allowed**2, 1.0), self.free / 2, self.rank / 2)) if self.rank and self.free else 1.0


def span_of(change: Tensor, noise: float, *, drift: float = 0.0) -> Span:
    """Span of a change ``(M, D)``, each number of which has noise of a standard deviation."""
    values, basis = row_space(change.double())
    edge = _EDGE * noise * (math.sqrt(change.shape[0]) + math.sqrt(change.shape[1]))
    rank = int((values > edge).sum())
    return Span(basis[:rank], values[:rank], noise, edge, drift)


def _squares(left: Tensor, right: Tensor) -> Tensor:
    """``(A, B)`` squared lengths of the sums of ``left (A, D)`` and ``right (B, D)``."""
    return left.square().sum(1)[:, None] + right.square().sum(1) + 2 * left @ right.T
