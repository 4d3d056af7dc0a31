"""Row space of a layer's change, and how far candidates for the layer's inputs lie outside it."""

import math
from dataclasses import dataclass

import torch
from scipy.stats import beta, chi2
from torch import Tensor

from fedleak.attacks.linear_algebra import along_and_outside, row_space
from fedleak.core.view import RoundView

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
        # Inputs are known to single precision, or drift over several steps.
        allowed = max(self.drift, _EXACT) ** 2 * _squares(left, right)
        if not self.drift:
            # By how much noise of variance 1 in the change moves each sum out of the span: sum_i (z v_i / sigma_i)^2.
            moved = _squares(along_left / self.values, along_right / self.values)
            allowed = allowed + max(self.noise**2 * quantile, self.edge**2) * moved
        return _squares(outside_left, outside_right).clamp(min=0) / allowed.clamp(min=1e-300)

    def false_acceptance(self, allowed: float) -> float:
        """Probability that a random direction is accepted, if a relative distance ``allowed`` is."""
        if not self.rank or not self.free:
            return 1.0
        # The squared part of a random unit vector outside of R of D dimensions is beta((D - R) / 2, R / 2).
        return float(beta.cdf(min(allowed**2, 1.0), self.free / 2, self.rank / 2))


def span_of(change: Tensor, noise: float, *, drift: float = 0.0) -> Span:
    """Span of a change ``(M, D)``, each number of which has noise of a standard deviation."""
    values, basis = row_space(change.double())
    # Largest singular value of an (M, D) matrix of pure noise: about s (sqrt(M) + sqrt(D)).
    edge = _EDGE * noise * (math.sqrt(change.shape[0]) + math.sqrt(change.shape[1]))
    rank = int((values > edge).sum())
    return Span(basis[:rank], values[:rank], noise, edge, drift)


def _squares(left: Tensor, right: Tensor) -> Tensor:
    """``(A, B)`` squared lengths of the sums of ``left (A, D)`` and ``right (B, D)``."""
    # |l + r|^2 = |l|^2 + |r|^2 + 2 l.r
    return left.square().sum(1)[:, None] + right.square().sum(1) + 2 * left @ right.T


def number_variances(view: RoundView) -> dict[str, Tensor]:
    """Variance of the error of each recorded number: declared noise, and rounding of the local model and of the sum."""
    variances = {}
    for name, change in view.deltas.items():
        if name in view.row_parameters:
            continue
        recorded_eps = torch.finfo(torch.float16 if name in view.rounded else change.dtype).eps
        # The local model was rounded at the size of its numbers: uniform errors of one spacing have variance 1/12.
        spacing = torch.finfo(change.dtype).eps * 2.0 ** view.model[name].double().abs().clamp(min=1e-30).log2().floor()
        of_model = spacing.square() / 12
        # The recorded sum was rounded at the size of its own.
        of_change = recorded_eps**2 * change.double().square().flatten(1).mean(1)
        of_change = of_change.reshape(-1, *[1] * view.model[name].dim())
        variances[name] = view.noise_scale(name) ** 2 + of_model + of_change
    return variances
