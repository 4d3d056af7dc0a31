"""Noise of the unknown order of mini-batches: its covariance, and effects in the metric in which it is white."""

from collections.abc import Sequence

import torch
from torch import Tensor

_FLOOR = 0.01
"""Variance of white noise in every direction, in parts of the mean variance that the order makes in a direction."""
_LEAST = {torch.float32: 1e-6, torch.float64: 1e-12}
"""Added to every eigenvalue of a Gram matrix, in parts of their sum: about its rounding errors."""


def whitened(
    gram: Tensor, products: Tensor, deviations: Sequence[tuple[Tensor, float]], records: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Effects and updates in the metric of the noise that the unknown order of the mini-batches makes.

    In one pass over its data a client takes every record at one place of the path, and the server does not know at
    which. The effect ``a_m`` of a candidate is its mean over the places p, with weights ``w_p``; what a record adds to
    the update differs from it by ``d_pm``, the deviation at its place. All places have equally many records, so what
    all records' deviations at a place have in common cancels. With M candidates that stand for the N records of the
    client, the covariance of the sum of the deviations is::

        K = N / M * sum_p w_p sum_m (d_pm - mean_m d_pm) (d_pm - mean_m d_pm)'

    The metric is the inverse of ``K + rho I`` in the span of the effects, where ``rho`` is `_FLOOR` of the mean
    eigenvalue of ``K``. The size of the noise stays free in the fit (`joint_fit.fit`). All matrices have M rows: the
    orthonormal basis of the span is that of the Cholesky factor of the Gram matrix.

    Args:
        gram: ``(M, M)`` inner products of the effects; its type says how exact they are.
        products: ``(M, V)`` inner products of the effects and the updates.
        deviations: ``(M, M)`` inner products of the deviations at a place (rows) and the effects (columns), and the
            weight of the place, for all places.
        records: number of records of the client, N.

    Returns:
        ``(M, M)`` Gram matrix of the effects and ``(M, V)`` products with the updates in that metric, in float64; and
        ``(V,)`` squared norms, before, of the parts of the updates that the effects span.

    References:
        This project; [Aitken35], for least squares in the metric of the noise.
    """
    count = len(gram)
    trace = float(gram.double().trace())
    if not trace > 0:
        return gram.double(), products.double(), products.new_zeros(products.shape[1], dtype=torch.float64)
    # With G = L L', coordinates in the orthonormal basis are L^-1 times inner products with the effects.
    factor = _cholesky(gram.to(torch.float64, copy=True), _LEAST[gram.dtype] * trace)
    updates = torch.linalg.solve_triangular(factor, products.double(), upper=False)
    spanned = updates.square().sum(0)
    # The covariance K: one place of the path after another, because each has a matrix of all pairs of candidates.
    noise = torch.zeros_like(factor)
    for inner, weight in deviations:
        coordinates = torch.linalg.solve_triangular(factor, inner.T.double(), upper=False)
        coordinates -= coordinates.mean(1, keepdim=True)
        noise.addmm_(coordinates, coordinates.T, alpha=weight * records / count)
        del coordinates
    if not float(noise.trace()) > 0:
        return gram.double(), products.double(), spanned
    # The effects have the coordinates L'. With K + rho I = N N', N^-1 makes the noise white.
    noise_factor = _cholesky(noise, _FLOOR * float(noise.trace()) / count)
    effects_and_updates = torch.cat([factor.T, updates], dim=1)
    del factor, noise
    white = torch.linalg.solve_triangular(noise_factor, effects_and_updates, upper=False)
    del noise_factor, effects_and_updates
    white_effects, white_updates = white[:, :count], white[:, count:]
    return white_effects.T @ white_effects, white_effects.T @ white_updates, spanned


def _cholesky(matrix: Tensor, added: float) -> Tensor:
    """Lower Cholesky factor of a positive semidefinite matrix, to whose diagonal a number is added in place."""
    matrix.diagonal().add_(added)
    factor: Tensor = torch.linalg.cholesky(matrix)
    return factor
