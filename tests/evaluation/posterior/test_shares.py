"""Posterior of shares: Bayes' rule for a skew law, calibrated, nothing from others' updates, finite for any numbers."""

import math

import pytest
import torch
from torch import Tensor

from evaluation.posterior.gaussian import VectorPosterior, vector_posterior
from evaluation.posterior.shares import share_posterior

PEOPLE, CLASSES, EXAMPLES = 400, 5, 50


@pytest.fixture
def shares() -> Tensor:
    """``(P, K)`` class shares of whole examples; many are 0."""
    torch.manual_seed(0)
    law = torch.distributions.Dirichlet(torch.full((CLASSES,), 0.3, dtype=torch.float64)).sample((PEOPLE,))
    counts = torch.multinomial(law, EXAMPLES, replacement=True)
    return torch.nn.functional.one_hot(counts, CLASSES).double().mean(1)


def found(inferred: Tensor, true: Tensor) -> VectorPosterior:
    width = torch.full((len(true),), 1 / EXAMPLES, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    return share_posterior(inferred, true, width, torch.arange(len(true)), generator=generator)


def noisy(true: Tensor, noise: float) -> Tensor:
    return true + noise * torch.randn(true.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.4, 2.0])
def test_calibrated_and_nearer_than_the_estimate_and_the_gaussian(shares: Tensor, noise: float) -> None:
    inferred = noisy(shares, noise)
    posterior = found(inferred, shares)
    assert posterior.calibration_error < 0.05
    width = torch.full((PEOPLE,), 1 / EXAMPLES, dtype=torch.float64)
    gaussian = vector_posterior(
        inferred, shares, width, torch.arange(PEOPLE), generator=torch.Generator().manual_seed(1)
    )
    errors = [float((mean - shares).abs().mean()) for mean in (posterior.mean, inferred, gaussian.mean)]
    assert errors[0] <= min(errors[1:]) + 0.002
    capacity = CLASSES / 2 * math.log2(1 + float(shares.var(0).mean()) / noise**2)
    assert -0.05 < float(posterior.bits.mean()) < capacity


def test_an_update_of_another_client_adds_nothing(shares: Tensor) -> None:
    posterior = found(noisy(shares, 0.02).roll(1, 0), shares)
    assert abs(float(posterior.bits.mean())) < 0.1


def test_an_exact_estimate_stays_as_it_is_and_adds_finite_bits(shares: Tensor) -> None:
    posterior = found(shares, shares)
    assert torch.equal(posterior.mean, shares)
    assert 5 < float(posterior.bits.mean()) < CLASSES * math.log2(EXAMPLES)


@pytest.mark.parametrize("true", [torch.ones(12, 4), torch.eye(4).repeat(3, 1), torch.rand(12, 40)])
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("width", [0.0, 0.02])
def test_degenerate_shares_give_finite_bits(true: Tensor, same: bool, width: float) -> None:
    true = true.double()
    inferred = true if same else torch.zeros_like(true)
    grid, generator = torch.full((12,), width, dtype=torch.float64), torch.Generator().manual_seed(0)
    posterior = share_posterior(inferred, true, grid, torch.arange(12), generator=generator)
    assert bool(posterior.bits.isfinite().all())
    assert bool(posterior.mean.isfinite().all())
