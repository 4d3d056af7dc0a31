"""Posterior of vectors: bits by hand for known moments, none for noise, finite for an exact estimate on a grid."""

import math

import pytest
import torch
from torch import Tensor

from fedleak.evaluation.posterior.gaussian import VectorPosterior, vector_posterior


def posterior(noise: float, *, people: int = 4000, grid: float = 0.0, related: bool = True) -> VectorPosterior:
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(people, 3, generator=generator, dtype=torch.float64)
    source = true if related else true.roll(1, 0)
    found = source + noise * torch.randn(true.shape, generator=generator, dtype=torch.float64) + 0.5
    width: Tensor = torch.full((people,), grid, dtype=torch.float64)
    return vector_posterior(found, true, width, torch.arange(people), generator=generator)


def test_bits_are_the_capacity_of_a_gaussian_channel() -> None:
    found = posterior(0.5)
    assert abs(float(found.bits.mean()) - 3 / 2 * math.log2(1 + 1 / 0.25)) < 0.1
    assert found.calibration_error < 0.02


def test_an_update_of_another_client_adds_nothing() -> None:
    assert abs(float(posterior(0.1, related=False).bits.mean())) < 0.05


def test_an_exact_estimate_on_a_grid_adds_the_bits_of_the_grid() -> None:
    grid = 0.1
    found = posterior(0.0, grid=grid)
    density = -3 / 2 * math.log2(2 * math.pi * math.e)  # mean logarithm of the prior density
    by_hand = 3 * math.log2(1 / grid) - density
    assert by_hand - 1 < float(found.bits.mean()) <= by_hand  # a normal law is not a uniform one
    assert found.calibration_error < 0.1


@pytest.mark.parametrize("true", [torch.ones(12, 4), torch.eye(4).repeat(3, 1), torch.rand(12, 40)])
@pytest.mark.parametrize("same", [True, False])
def test_degenerate_vectors_give_finite_bits(true: Tensor, same: bool) -> None:
    true = true.double()
    found = true if same else torch.zeros_like(true)
    generator = torch.Generator().manual_seed(0)
    posterior = vector_posterior(found, true, torch.zeros(12).double(), torch.arange(12), generator=generator)
    assert bool(posterior.bits.isfinite().all())
    assert bool(posterior.mean.isfinite().all())
