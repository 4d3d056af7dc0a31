"""Least squares over compositions: non-negative, on the simplex, and generalised, on simulated clients."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor
from torch.nn.functional import one_hot

from fedleak.attacks.linear_algebra import ledoit_wolf_of_gram

_SOFT = 0.03
"""Share below which a change is about linear in the share; above, in its logarithm."""
_REACH, _LEAST = 1.0, 0.1
"""L1 distance from a victim at which the weight of a simulation has decayed to 1/e, and the minimum weight."""
_RIDGE = 0.01
_STEPS = 30
_FOLDS = 4


@dataclass(frozen=True)
class Simulations:
    """Simulated clients: ``compositions (M, K)``, ``changes (M, D)``, and ``group (M,)`` that they are near."""

    compositions: Tensor
    changes: Tensor
    group: Tensor

    def __getitem__(self, chosen: Tensor) -> Self:
        return type(self)(self.compositions[chosen], self.changes[chosen], self.group[chosen])

    def and_more(self, other: Self) -> Self:
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("compositions", "changes", "group"))
        return type(self)(*(torch.cat(pair) for pair in pairs))


class LocalLeastSquares:
    """Model ``change = m_g + J_v (u(q) - u_g) + noise`` of simulated clients of group g, solved for the composition q.

    ``u(q) = log(q + 0.03)``, because a trained classifier follows the logarithm of the class frequencies. ``m_g`` and
    ``u_g`` are means of the group. The response ``J_v (K, D)`` of a victim is a ridge regression on all simulations,
    weighted by their distance from its group. The noise (order of mini-batches, sampling of examples) has one
    covariance ``S = (1 - s) N'N / n + s t I``, of n left-out residuals N with mean variance t and the shrinkage s of
    Ledoit and Wolf. Everything is computed from inner products of changes, because there are far fewer simulations than
    parameters.

    Args:
        simulated: simulations; groups are numbered from 0.
        noise_of: ``(M,)`` bool, the simulations whose residuals give the covariance.
        white: variance of further noise on each number, which clients add and simulations lack. With it, shares have a
            normal prior about equal shares, with the variance of the simulated ones.

    References:
        Aitken, "On least squares and linear combination of observations", 1936; Ledoit and Wolf, "A well-conditioned
        estimator for large-dimensional covariance matrices", Journal of Multivariate Analysis, 2004.
    """

    def __init__(self, simulated: Simulations, noise_of: Tensor, white: float = 0.0) -> None:
        self.white, self.variance = white, float(simulated.compositions.var(0).mean())
        own = simulated.group
        groups = one_hot(own).double()
        counts = groups.sum(0).clamp(min=1)
        points = (simulated.compositions + _SOFT).log()
        self.centre = groups.T @ simulated.compositions / counts[:, None]
        self.point = groups.T @ points / counts[:, None]
        self.mean = groups.T.float() @ simulated.changes / counts[:, None].float()
        scale = (counts / (counts - 1).clamp(min=1)).sqrt()[own, None]
        points = (points - self.point[own]) * scale
        self.changes = (simulated.changes - self.mean[own]) * scale.float()
        products = (self.changes @ self.changes.T).double()
        distance = (self.centre[:, None] - simulated.compositions).abs().sum(2)
        weighted = points.T * (torch.exp(-((distance / _REACH) ** 2)) + _LEAST)[:, None]
        inner = weighted @ points
        ridge = _RIDGE * inner.diagonal(dim1=1, dim2=2).mean(1) + torch.finfo(torch.float64).tiny
        # The response is a combination of simulated changes, ``response @ changes``.
        self.response = torch.linalg.solve(inner + ridge[:, None, None] * torch.eye(points.shape[1]).double(), weighted)
        self.precision, self.inverse = self._inverse(points, own, products, noise_of)

    def _inverse(self, points: Tensor, own: Tensor, products: Tensor, noise_of: Tensor) -> tuple[Tensor, Tensor]:
        """Precisions ``J S^-1 J' (G, K, K)``, and the matrix B with ``J S^-1 x = response B (changes x)``."""
        explained = (points[:, None] @ self.response[own]).squeeze(1)
        identity = torch.eye(len(points)).double()
        residual = ((identity - explained) / (1 - explained.diagonal()).clamp(min=0.2)[:, None])[noise_of]
        noise = residual @ products @ residual.T
        width = self.changes.shape[1]
        shrinkage = ledoit_wolf_of_gram(noise, width)
        floor = max(shrinkage * float(noise.diagonal().mean()) / width + self.white, torch.finfo(torch.float32).tiny)
        scale = (1 - shrinkage) / len(noise)
        middle = torch.linalg.inv(floor * torch.eye(len(noise)).double() + scale * noise) * scale
        inverse = (identity - products @ residual.T @ middle @ residual) / floor
        return self.response @ inverse @ products @ self.response.transpose(1, 2), inverse

    def estimate(self, changes: Tensor, group: Tensor) -> Tensor:
        """Compositions ``(V, K)`` of the most likely clients with ``changes (V, D)``, near the groups ``(V,)``."""
        gap = ((changes - self.mean[group]) @ self.changes.T).double()
        precision = self.precision[group]
        right = (self.response[group] @ self.inverse @ gap[..., None]).squeeze(2)
        shares = self.centre[group]  # from elsewhere, the iteration could end where the local model says nothing
        prior = torch.eye(right.shape[1]).double() * (bool(self.white) / self.variance)
        for _ in range(_STEPS):
            slope = 1 / (shares + _SOFT)
            rest = self.point[group] - (shares + _SOFT).log() + slope * shares
            target = slope * (right + (precision @ rest[..., None]).squeeze(2))
            found = shares_on_simplex(slope[:, :, None] * precision * slope[:, None] + prior, target + prior.mean(1))
            shares = (shares + found) / 2
        return shares


def left_out_errors(
    simulated: Simulations, noise_of: Tensor, white: float = 0.0, *, generator: torch.Generator
) -> Tensor:
    """``(G, K)`` r.m.s. error of each share of a group's simulations, a quarter of which is left out at a time.

    Noise of variance `white` is added to those left out.
    """
    noise = white**0.5 * torch.randn(simulated.changes.shape, generator=generator) if white else 0
    rank = torch.arange(len(simulated.group)) % _FOLDS
    squares = torch.zeros(len(simulated.group), simulated.compositions.shape[1], dtype=torch.float64)
    for fold in range(_FOLDS):
        kept, left = rank != fold, (rank == fold) & noise_of
        model = LocalLeastSquares(simulated[kept], noise_of[kept], white)
        found = model.estimate((simulated.changes + noise)[left], simulated.group[left])
        squares[left] = (found - simulated.compositions[left]).square()
    groups = one_hot(simulated.group).double()[noise_of]
    mean: Tensor = groups.T @ squares[noise_of] / groups.sum(0).clamp(min=1)[:, None]
    return mean.sqrt()


_LEAST_EIGENVALUE = 1e-9
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
    root = values.clamp(min=_LEAST_EIGENVALUE * largest).sqrt()[..., None]
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
