"""Decaf's fourth step: a client's change as a non-negative combination of the classes' changes."""

from typing import Literal

import torch
from scipy.optimize import nnls
from torch import Tensor

Solver = Literal["exact", "early-stopped"]


def decompose(
    target: Tensor, bases: Tensor, united: Tensor | None, present: Tensor, *, solver: Solver, steps: int = 10
) -> Tensor:
    """Proportions of the present classes (Algorithm 3, equations 19 to 21).

    Minimises ``|sum_c a_c g_c + a_0 g_0 - G|^2`` over ``a >= 0`` and returns ``q_c ~ a_c + a_0 / k`` where k classes
    are present. The paper's formulas are lost in the text at hand; its printed tables repeat the smallest proportion
    of a row exactly, which is ``a_c = 0`` for several classes.

    Args:
        target: ``(V, D)`` the clients' changes G.
        bases: ``(K, D)`` the classes' changes g_c.
        united: ``(V, D)`` the change g_0 of all present classes together, the calibrator; None for none.
        present: ``(V, K)`` bool.
        solver: ``exact``, which 1000 steps of gradient descent reach too; or ``early-stopped``, a few steps of
            projected gradient from ``a = 1 / (k + 1)``, which draws the estimate towards equal shares.
        steps: of the early stop.

    Returns:
        ``(V, K)`` proportions, each row summing to one.
    """
    columns = bases.double().expand(len(target), *bases.shape)
    if united is not None:
        columns = torch.cat([columns, united.double()[:, None]], dim=1)
    gram = columns @ columns.transpose(1, 2)
    product = (columns @ target.double()[..., None]).squeeze(2)
    allowed = torch.cat([present, present.new_ones(len(present), columns.shape[1] - present.shape[1])], dim=1)
    factors = _exact(columns, target, allowed) if solver == "exact" else _stopped(gram, product, allowed, steps)
    classes = present.shape[1]
    shares = factors[:, :classes] + (0 if united is None else factors[:, classes:] / present.sum(1, keepdim=True))
    shares = shares * present
    total = shares.sum(1, keepdim=True)
    equal = present / present.sum(1, keepdim=True)
    return torch.where(total > 0, shares / total.where(total > 0, 1), equal)


def _exact(columns: Tensor, target: Tensor, allowed: Tensor) -> Tensor:
    """Non-negative least squares (Lawson and Hanson); every client has an active set of its own, hence the loop."""
    factors = torch.zeros(allowed.shape, dtype=torch.float64)
    for client, chosen in enumerate(allowed):
        matrix, right = columns[client][chosen].T, target[client].double()
        orthogonal, triangle = torch.linalg.qr(matrix)
        solution, _ = nnls(triangle.numpy(), (orthogonal.T @ right).numpy())
        factors[client, chosen] = torch.from_numpy(solution)
    return factors


def _stopped(gram: Tensor, product: Tensor, allowed: Tensor, steps: int) -> Tensor:
    largest = torch.linalg.eigvalsh(gram * (allowed[:, :, None] & allowed[:, None, :]))[:, -1:]
    factors = allowed / allowed.sum(1, keepdim=True).double()
    for _ in range(steps):
        gradient = (gram @ factors[..., None]).squeeze(2) - product
        factors = (factors - gradient / largest.clamp(min=1e-300)).clamp(min=0) * allowed
    return factors
