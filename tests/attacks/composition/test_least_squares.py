"""Least squares over compositions is constrained quadratic optimisation."""

import functools

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize

from attacks.composition.least_squares import shares_on_simplex
from protocol.seeding import generator_for


def _problem() -> tuple[torch.Tensor, torch.Tensor]:
    root = torch.randn(6, 8, 5, generator=generator_for(0, "simplex"), dtype=torch.float64)
    return root.transpose(1, 2) @ root, torch.randn(6, 5, generator=generator_for(1, "simplex"), dtype=torch.float64)


def _objective(matrix: npt.NDArray[np.float64], vector: npt.NDArray[np.float64], q: npt.NDArray[np.float64]) -> float:
    return float(q @ matrix @ q - 2 * q @ vector)


def _excess(q: npt.NDArray[np.float64]) -> float:
    return float(q.sum() - 1)


def test_the_solution_is_that_of_a_general_solver() -> None:
    precision, target = _problem()
    found = shares_on_simplex(precision, target)
    for matrix, vector, shares in zip(precision.numpy(), target.numpy(), found.numpy(), strict=True):
        objective = functools.partial(_objective, matrix, vector)
        sums = {"type": "eq", "fun": _excess}
        slow = minimize(objective, np.full(5, 0.2), bounds=[(0, 1)] * 5, constraints=[sums], options={"ftol": 1e-14})  # type: ignore[call-overload]
        np.testing.assert_allclose(shares, slow.x, atol=1e-4)


def test_a_target_of_unknown_scale_gives_the_same_shares_at_every_scale() -> None:
    precision, target = _problem()
    once = shares_on_simplex(precision, target.abs(), scaled=True)
    torch.testing.assert_close(shares_on_simplex(precision, 7 * target.abs(), scaled=True), once)
    nothing = shares_on_simplex(precision, torch.zeros_like(target), scaled=True)
    torch.testing.assert_close(nothing, torch.full((6, 5), 0.2, dtype=torch.float64))
