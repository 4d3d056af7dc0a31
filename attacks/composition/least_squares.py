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
_REACH = 1.0
"""L1 distance from a victim at which the weight of a simulation has decayed to 1/e."""
_LEAST = 0.1
"""Least weight of a simulation, of those far away."""
_RIDGE = 0.01
"""Penalty of the response, relative to the mean weighted square of a composition's coordinate."""
_STEPS = 30
"""Iterations, each half of the way to the solution of the linearised problem."""
_FOLDS = 4
"""Parts of the simulations, each of which is left out once for the standard errors."""


@dataclass(frozen=True)
class Simulations:
    """Simulated clients: ``compositions (M, K)``, ``changes (M, D)``, and ``group (M,)`` that they are near."""

    compositions: Tensor
    changes: Tensor
    group: Tensor

    def __getitem__(self, chosen: Tensor) -> Self:
        return type(self)(self.compositions[chosen], self.changes[chosen], self.group[chosen])

    def and_more(self, more: Self) -> Self:
        return type(self)(
            torch.cat([self.compositions, more.compositions]),
            torch.cat([self.changes, more.changes]),
            torch.cat([self.group, more.group]),
        )


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
        [Aitken35]; [Ledoit04].
    """

    def __init__(self, simulated: Simulations, noise_of: Tensor, white: float = 0.0) -> None:
        self.white = white
        self.variance = float(simulated.compositions.var(0).mean())
        group = simulated.group
        # Means of each group: q_g of compositions, u_g of their coordinates u(q), m_g of changes.
        membership = one_hot(group).double()
        counts = membership.sum(0).clamp(min=1)
        points = (simulated.compositions + _SOFT).log()
        self.centre = membership.T @ simulated.compositions / counts[:, None]
        self.point = membership.T @ points / counts[:, None]
        self.mean = membership.T.float() @ simulated.changes / counts[:, None].float()
        # A group's own mean takes away 1/n of the variance: sqrt(n / (n - 1)) restores it.
        scale = (counts / (counts - 1).clamp(min=1)).sqrt()[group, None]
        points = (points - self.point[group]) * scale
        self.changes = (simulated.changes - self.mean[group]) * scale.float()
        products = (self.changes @ self.changes.T).double()
        # Ridge regression of changes on points, weighted by the distance of a composition from each group's centre.
        distance = (self.centre[:, None] - simulated.compositions).abs().sum(2)
        weights = torch.exp(-((distance / _REACH) ** 2)) + _LEAST
        weighted = points.T * weights[:, None]
        inner = weighted @ points
        ridge = _RIDGE * inner.diagonal(dim1=1, dim2=2).mean(1) + torch.finfo(torch.float64).tiny
        # The response is a combination of simulated changes, ``response @ changes``.
        identity = torch.eye(points.shape[1]).double()
        self.response = torch.linalg.solve(inner + ridge[:, None, None] * identity, weighted)
        self.precision, self.inverse = self._inverse(points, group, products, noise_of)

    def _inverse(self, points: Tensor, group: Tensor, products: Tensor, noise_of: Tensor) -> tuple[Tensor, Tensor]:
        """Precisions ``J S^-1 J' (G, K, K)``, and the matrix B with ``J S^-1 x = response B (changes x)``."""
        # Left-out residuals, as combinations of changes: the residual over 1 - h, h the leverage of the simulation.
        # A leverage above 0.8 would make them too large.
        explained = (points[:, None] @ self.response[group]).squeeze(1)
        identity = torch.eye(len(points)).double()
        leverage = explained.diagonal()
        residual = ((identity - explained) / (1 - leverage).clamp(min=0.2)[:, None])[noise_of]
        noise = residual @ products @ residual.T  # N N'
        # S = floor I + scale N'N, with the shrinkage s: floor = s t + white, scale = (1 - s) / n.
        width = self.changes.shape[1]
        shrinkage = ledoit_wolf_of_gram(noise, width)
        mean_variance = float(noise.diagonal().mean())
        floor = max(shrinkage * mean_variance / width + self.white, torch.finfo(torch.float32).tiny)
        scale = (1 - shrinkage) / len(noise)
        # Woodbury: S^-1 = (I - N' M N) / floor, with M = scale (floor I + scale N N')^-1, which is small.
        middle = torch.linalg.inv(floor * torch.eye(len(noise)).double() + scale * noise) * scale
        inverse = (identity - products @ residual.T @ middle @ residual) / floor
        precision = self.response @ inverse @ products @ self.response.transpose(1, 2)
        return precision, inverse

    def estimate(self, changes: Tensor, group: Tensor) -> Tensor:
        """Compositions ``(V, K)`` of the most likely clients with ``changes (V, D)``, near the groups ``(V,)``."""
        gap = ((changes - self.mean[group]) @ self.changes.T).double()
        precision = self.precision[group]  # J S^-1 J'
        matched = (self.response[group] @ self.inverse @ gap[..., None]).squeeze(2)  # J S^-1 (x - m_g)
        shares = self.centre[group]  # from elsewhere, the iteration could end where the local model says nothing
        # Where clients add noise, a normal prior about equal shares.
        prior = torch.eye(matched.shape[1]).double() * (bool(self.white) / self.variance)
        for _ in range(_STEPS):
            # u(p) is about u(q) + D (p - q) near the shares q, with the diagonal slope D = 1 / (q + 0.03). So p solves
            # D P D p = D (J S^-1 (x - m_g) + P (u_g - u(q) + D q)), on the simplex.
            slope = 1 / (shares + _SOFT)
            rest = self.point[group] - (shares + _SOFT).log() + slope * shares
            target = slope * (matched + (precision @ rest[..., None]).squeeze(2))
            linearised = slope[:, :, None] * precision * slope[:, None]
            solution = shares_on_simplex(linearised + prior, target + prior.mean(1))
            shares = (shares + solution) / 2
        return shares


def left_out_errors(
    simulated: Simulations, noise_of: Tensor, white: float = 0.0, *, generator: torch.Generator
) -> Tensor:
    """``(G, K)`` r.m.s. error of each share of a group's simulations, a quarter of which is left out at a time.

    Noise of variance `white` is added to those left out.
    """
    noise: Tensor | int = 0
    if white:
        noise = white**0.5 * torch.randn(simulated.changes.shape, generator=generator)
    fold_of = torch.arange(len(simulated.group)) % _FOLDS
    squares = torch.zeros(len(simulated.group), simulated.compositions.shape[1], dtype=torch.float64)
    for fold in range(_FOLDS):
        training = fold_of != fold
        left_out = (fold_of == fold) & noise_of
        model = LocalLeastSquares(simulated[training], noise_of[training], white)
        estimated = model.estimate((simulated.changes + noise)[left_out], simulated.group[left_out])
        squares[left_out] = (estimated - simulated.compositions[left_out]).square()
    membership = one_hot(simulated.group).double()[noise_of]
    mean: Tensor = membership.T @ squares[noise_of] / membership.sum(0).clamp(min=1)[:, None]
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
    # With P = U diag(l) U', the root F = diag(sqrt(l)) U' and r = diag(1 / sqrt(l)) U' b:
    # q' P q - 2 q' b = |F q - r|^2 but for a constant.
    values, vectors = torch.linalg.eigh((precision + precision.transpose(1, 2)) / 2)
    largest = values[:, -1:].clamp(min=torch.finfo(torch.float64).tiny)
    root = values.clamp(min=_LEAST_EIGENVALUE * largest).sqrt()[..., None]
    factors = root * vectors.transpose(1, 2)
    targets = (vectors.transpose(1, 2) @ target[..., None] / root).squeeze(2)
    solutions = []
    for matrix, client_target in zip(factors.numpy(), targets.numpy(), strict=True):
        # One more row, of a large weight: the shares sum to one. Of an unknown scale, its weight is zero.
        weight = 0.0
        if not scaled:
            weight = _HEAVY * np.abs(matrix).max()
        sum_row = np.full((1, size), weight)
        solution, _ = nnls(np.vstack([matrix, sum_row]), np.append(client_target, weight))
        solutions.append(solution)
    shares = torch.from_numpy(np.stack(solutions))
    total = shares.sum(1, keepdim=True)
    return torch.where(total > 0, shares / total.where(total > 0, 1), 1 / size)


def non_negative_factors(columns: Tensor, target: Tensor, allowed: Tensor) -> Tensor:
    """Factors ``(V, C) >= 0``, zero where not ``allowed (V, C)``, of ``columns (V, C, D)`` nearest ``target (V, D)``.

    By Lawson and Hanson; a loop, because every client has its own active set.
    """
    factors = torch.zeros(allowed.shape, dtype=torch.float64)
    for client, chosen in enumerate(allowed):
        matrix = columns[client][chosen].T
        client_target = target[client].double()
        # |A x - b| differs from |R x - Q'b| by a constant, which leaves C rows of the D.
        orthogonal, triangle = torch.linalg.qr(matrix)
        solution, _ = nnls(triangle.numpy(), (orthogonal.T @ client_target).numpy())
        factors[client, chosen] = torch.from_numpy(solution)
    return factors
