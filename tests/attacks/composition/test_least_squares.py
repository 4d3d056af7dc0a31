"""Least squares over compositions is constrained quadratic optimisation."""

import functools

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.optimize import minimize
from sklearn.covariance import ledoit_wolf_shrinkage

from fedleak.attacks.composition.least_squares import (
    LocalLeastSquares,
    Simulations,
    left_out_errors,
    shares_on_simplex,
)
from fedleak.client.simulated_clients import random_compositions
from fedleak.core.seeding import generator_for


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


CLASSES, WIDTH = 4, 60


def _simulated(count: int, seed: int = 0) -> Simulations:
    """Changes linear in ``log(q + 0.03)``, with strong noise in three directions and weak noise elsewhere."""
    generator = generator_for(seed, "simulated")
    fixed = generator_for(0, "response")
    response, directions = (torch.randn(n, WIDTH, generator=fixed, dtype=torch.float64) for n in (CLASSES, 3))
    shares = random_compositions(count, CLASSES, generator=generator)
    strong = 5 * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    weak = 0.1 * torch.randn(count, WIDTH, generator=generator, dtype=torch.float64)
    changes = (shares + 0.03).log() @ response + strong @ directions + weak
    return Simulations(shares, changes.float(), torch.zeros(count, dtype=torch.int64))


def test_precision_is_that_of_dense_matrices() -> None:
    simulated = _simulated(30)
    model = LocalLeastSquares(simulated, torch.ones(30, dtype=torch.bool))
    points = (simulated.compositions + 0.03).log()
    scale = (30 / 29) ** 0.5
    u, x = ((part - part.mean(0)) * scale for part in (points, simulated.changes.double()))
    distance = (simulated.compositions - simulated.compositions.mean(0)).abs().sum(1)
    weighted = u.T * (torch.exp(-(distance**2)) + 0.1)
    inner = weighted @ u
    inner = inner + 0.01 * inner.diagonal().mean() * torch.eye(CLASSES)
    response = torch.linalg.solve(inner, weighted @ x)
    leverage = (u * torch.linalg.solve(inner, weighted).T).sum(1)
    residuals = (x - u @ response) / (1 - leverage).clamp(min=0.2)[:, None]
    shrinkage = float(ledoit_wolf_shrinkage(residuals.numpy(), assume_centered=True))
    floor = shrinkage * residuals.square().mean() * torch.eye(WIDTH)
    covariance = (1 - shrinkage) * residuals.T @ residuals / 30 + floor
    dense = response @ torch.linalg.solve(covariance, response.T)
    torch.testing.assert_close(model.precision[0], dense, rtol=1e-3, atol=1e-3 * float(dense.abs().max()))


def test_compositions_are_found_through_strong_noise_in_few_directions() -> None:
    simulated, unseen = _simulated(80), _simulated(20, seed=1)
    everyone = torch.ones(80, dtype=torch.bool)
    found = LocalLeastSquares(simulated, everyone).estimate(unseen.changes, unseen.group)
    error = float((found - unseen.compositions).square().mean().sqrt())
    assert error < 0.02
    told = float(left_out_errors(simulated, everyone, generator=generator_for(0, "noise")).square().mean().sqrt())
    assert error / 2 < told < 2 * error


def test_known_noise_that_simulations_lack_is_part_of_the_covariance() -> None:
    simulated, unseen = _simulated(80), _simulated(200, seed=1)
    everyone, generator = torch.ones(80, dtype=torch.bool), generator_for(0, "white")
    noisy = unseen.changes + 4 * torch.randn(unseen.changes.shape, generator=generator)
    blind, knowing = (
        LocalLeastSquares(simulated, everyone, white).estimate(noisy, unseen.group) - unseen.compositions
        for white in (0.0, 16.0)
    )
    assert float(knowing.square().mean()) < float(blind.square().mean())
    told = left_out_errors(simulated, everyone, 16.0, generator=generator)
    assert float(told.square().mean().sqrt()) == pytest.approx(float(knowing.square().mean().sqrt()), rel=0.3)


def test_simulations_decoupled_from_their_compositions_say_nothing() -> None:
    simulated, unseen = _simulated(80), _simulated(20, seed=1)
    shuffled = Simulations(simulated.compositions.roll(7, 0), simulated.changes, simulated.group)
    found = LocalLeastSquares(shuffled, torch.ones(80, dtype=torch.bool)).estimate(unseen.changes, unseen.group)
    assert float((found - unseen.compositions).square().mean().sqrt()) > 0.15
