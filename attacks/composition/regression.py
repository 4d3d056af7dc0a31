"""Weighted ridge regression in the dual, many at once, its strength chosen by leaving one out."""

from dataclasses import dataclass

import torch
from torch import Tensor

STRENGTHS = tuple(10.0**power for power in (-3.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0))
_INTERCEPT = 10.0
"""Scale of the constant feature beside the others: large, so that it is hardly shrunk."""


@dataclass(frozen=True)
class Prediction:
    """What a regression says of its query.

    Attributes:
        value: ``(V, K)``.
        error: ``(V, K)`` weighted r.m.s. of the residuals with each example left out.
    """

    value: Tensor
    error: Tensor


def ridge(gram: Tensor, targets: Tensor, weights: Tensor, query: Tensor) -> Prediction:
    """Regresses targets on features of which only the inner products are given.

    With ``K`` the centred Gram matrix of the examples, each scaled by the root s of its weight, and ``t`` the mean of
    its diagonal, the residual with example m left out is ``[A^-1 B]_m / [A^-1]_mm``, ``A = K + lam t I + 10 t s s^T``:
    the last term is the constant feature. Without it centring, which knew the example, makes the residuals far too
    small, and no shrinkage is chosen.

    Args:
        gram: ``(V, M, M)`` inner products of the examples.
        targets: ``(V, M, K)``.
        weights: ``(V, M)``, at least 0.
        query: ``(V, M)`` inner products of the query with the examples.
    """
    share = weights / weights.sum(1, keepdim=True)
    mean_row = (share[:, None] @ gram).squeeze(1)
    mean_all = (mean_row * share).sum(1)[:, None]
    centred = gram - mean_row[:, :, None] - mean_row[:, None] + mean_all[..., None]
    towards = query - mean_row - (share * query).sum(1, keepdim=True) + mean_all
    centre = share[:, None] @ targets
    root = weights.sqrt()
    scaled = centred * root[:, :, None] * root[:, None]
    right = (targets - centre) * root[..., None]
    unit = scaled.diagonal(dim1=1, dim2=2).mean(1).clamp(min=1e-300)
    constant = _INTERCEPT * unit[:, None, None] * root[:, :, None] * root[:, None]
    residuals = [_left_out(scaled + constant, strength * unit, right) for strength in STRENGTHS]
    losses = torch.stack([r.square().sum((1, 2)) for r in residuals])
    best = losses.argmin(0)
    strength = torch.tensor(STRENGTHS, dtype=gram.dtype)[best] * unit
    identity = torch.eye(gram.shape[1], dtype=gram.dtype)
    factors = torch.linalg.solve(scaled + strength[:, None, None] * identity, right)
    value = centre + (towards * root)[:, None] @ factors
    chosen = torch.stack(residuals)[best, torch.arange(len(best))]
    error = (chosen.square().sum(1) / weights.sum(1, keepdim=True)).sqrt()
    return Prediction(value.squeeze(1), error)


def _left_out(matrix: Tensor, shrinkage: Tensor, right: Tensor) -> Tensor:
    identity = torch.eye(matrix.shape[1], dtype=matrix.dtype)
    inverse = torch.linalg.inv(matrix + shrinkage[:, None, None] * identity)
    residuals: Tensor = (inverse @ right) / inverse.diagonal(dim1=1, dim2=2)[..., None]
    return residuals
