"""Non-negative least squares of clients, and over their compositions."""

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

_RIDGE = 1e-9
"""Least eigenvalue of the precision, relative to the largest."""
_HEAVY = 1e3
"""Weight of the equation that shares sum to one, relative to the largest coefficient."""


def shares_on_simplex(precision: Tensor, target: Tensor, *, scaled: bool = False) -> Tensor:
    """Compositions ``(V, K)`` that minimise ``q' P q - 2 q' b``, for ``P (V, K, K)`` and ``b (V, K)``.

    Non-negative least squares on a square root of P (Lawson and Hanson); a loop, because every client has its own
    active set. If the target has an unknown scale (`scaled`), the solution is normalised instead of constrained.
    """
    size = precision.shape[1]
    values, vectors = torch.linalg.eigh((precision + precision.transpose(1, 2)) / 2)
    largest = values[:, -1:].clamp(min=torch.finfo(torch.float64).tiny)
    root = values.clamp(min=_RIDGE * largest).sqrt()[..., None]
    factor = root * vectors.transpose(1, 2)
    right = (vectors.transpose(1, 2) @ target[..., None] / root).squeeze(2)
    found = []
    for matrix, goal in zip(factor.numpy(), right.numpy(), strict=True):
        heavy = 0.0 if scaled else _HEAVY * np.abs(matrix).max()
        found.append(nnls(np.vstack([matrix, np.full((1, size), heavy)]), np.append(goal, heavy))[0])
    shares = torch.from_numpy(np.stack(found))
    total = shares.sum(1, keepdim=True)
    return torch.where(total > 0, shares / total.where(total > 0, 1), 1 / size)


def non_negative_factors(columns: Tensor, target: Tensor, allowed: Tensor) -> Tensor:
    """Factors ``(V, C) >= 0``, zero where not ``allowed (V, C)``, of ``columns (V, C, D)`` nearest ``target (V, D)``.

    By Lawson and Hanson; a loop, because every client has its own active set.
    """
    factors = torch.zeros(allowed.shape, dtype=torch.float64)
    for client, chosen in enumerate(allowed):
        matrix, right = columns[client][chosen].T, target[client].double()
        orthogonal, triangle = torch.linalg.qr(matrix)
        solution, _ = nnls(triangle.numpy(), (orthogonal.T @ right).numpy())
        factors[client, chosen] = torch.from_numpy(solution)
    return factors
