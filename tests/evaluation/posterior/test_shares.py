"""Posterior of shares: Bayes' rule on counts, no more bits than there are, calibrated, nothing from others' updates."""

import math

import numpy as np
import pytest
import torch
from scipy.special import gammaln
from torch import Tensor

from fedleak.core.largest_remainders import largest_remainders
from fedleak.evaluation.posterior.gaussian import VectorPosterior, vector_posterior
from fedleak.evaluation.posterior.shares import MOST_EXAMPLES, share_posterior

PEOPLE, CLASSES, EXAMPLES = 200, 5, 50


def clients(people: int, classes: int, examples: int, concentration: float) -> Tensor:
    """``(P, K)`` shares of Dirichlet-multinomial counts."""
    generator = np.random.default_rng(0)
    laws = generator.dirichlet(np.full(classes, concentration), size=people)
    return torch.tensor(np.array([generator.multinomial(examples, law) for law in laws]) / examples)


@pytest.fixture
def shares() -> Tensor:
    """``(P, K)`` class shares of whole examples; many are 0."""
    return clients(PEOPLE, CLASSES, EXAMPLES, 0.3)


def found(inferred: Tensor, true: Tensor, examples: int = EXAMPLES) -> VectorPosterior:
    width = torch.full((len(true),), 1 / examples, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    return share_posterior(inferred, true, width, torch.arange(len(true)), generator=generator)


def noisy(true: Tensor, noise: float) -> Tensor:
    return true + noise * torch.randn(true.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def interval(bits: Tensor) -> tuple[float, float]:
    half = 1.96 * float(bits.std()) / math.sqrt(len(bits))
    return float(bits.mean()) - half, float(bits.mean()) + half


def entropy(classes: int, examples: int, concentration: float) -> float:
    """Entropy in bits of Dirichlet-multinomial counts, by drawing 20,000."""
    counts = clients(20_000, classes, examples, concentration).numpy() * examples
    whole = classes * concentration
    nats = gammaln(whole) - gammaln(examples + whole) + gammaln(examples + 1)
    nats += (gammaln(counts + concentration) - gammaln(concentration) - gammaln(counts + 1)).sum(1)
    return -float(nats.mean()) / math.log(2)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("examples", "classes", "concentration"),
    [(20, 2, 1.0), (10, 2, 1.0), (20, 3, 0.3), (10, 10, 0.5), (10, 10, 0.1), (40, 10, 0.5)],
)
def test_exact_estimates_have_the_entropy_of_the_answers_at_most(
    examples: int, classes: int, concentration: float
) -> None:
    true = clients(40, classes, examples, concentration)
    bits = found(true, true, examples).bits
    possible = math.log2(math.comb(examples + classes - 1, classes - 1))
    assert float(bits.mean()) <= possible + 1e-9
    low, high = interval(bits)
    whole = entropy(classes, examples, concentration)
    assert low <= whole + 1e-6
    assert high >= 0.9 * whole  # and nearly all of it, as they are exact


@pytest.mark.integration
@pytest.mark.parametrize(("examples", "classes"), [(20, 2), (20, 3), (40, 10)])
@pytest.mark.parametrize("kind", ["another client's", "noise"])
def test_decoupled_estimates_add_nothing(examples: int, classes: int, kind: str) -> None:
    true = clients(40, classes, examples, 0.5)
    estimates = true.roll(1, 0) if kind == "another client's" else clients(40, classes, 997, 1.0).roll(3, 1)
    low, high = interval(found(estimates, true, examples).bits)
    assert low <= 0 <= high or abs(low) + abs(high) < 0.1


@pytest.mark.integration
@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_gaussian_noise_on_two_shares_has_the_bits_of_bayes_rule(noise: float) -> None:
    """The errors of two shares are one number; counting it twice would make intervals too narrow."""
    true = clients(400, 2, 20, 1.0)
    error = noise * torch.randn(400, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    inferred = true + torch.stack([error, -error], dim=1)
    posterior = found(inferred, true, 20)
    possible = torch.arange(21, dtype=torch.float64) / 20  # all 21 are equally likely
    logs = -((inferred[:, :1] - possible) ** 2) / (2 * noise**2)
    exact = (logs - logs.logsumexp(1, keepdim=True)).gather(1, (true[:, :1] * 20).round().long())
    expected = float(exact.mean()) / math.log(2) + math.log2(21)
    assert float(posterior.bits.mean()) == pytest.approx(expected, abs=0.12)
    assert posterior.calibration_error < 0.05


@pytest.mark.integration
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
    assert float(posterior.bits.mean()) > -0.05
    assert interval(posterior.bits)[0] < capacity


def test_an_exact_estimate_stays_as_it_is_and_leaves_nothing_unknown(shares: Tensor) -> None:
    posterior = found(shares, shares)
    assert torch.equal(posterior.mean, shares)
    assert posterior.left is not None
    assert float(posterior.left.mean()) < 0.01


def test_shares_of_many_examples_are_rounded_to_whole_parts() -> None:
    true = clients(12, 3, 5000, 1.0)
    totals = torch.full((12,), MOST_EXAMPLES)
    assert torch.equal(largest_remainders(true, totals).sum(1), totals)
    bits = found(true, true, 5000).bits
    assert float(bits.mean()) <= math.log2(math.comb(MOST_EXAMPLES + 2, 2))


def test_sizes_may_differ() -> None:
    generator = np.random.default_rng(0)
    sizes = torch.tensor(generator.integers(2, 60, size=50))
    true = largest_remainders(clients(50, 4, 997, 0.5), sizes) / sizes[:, None].double()
    posterior = share_posterior(
        true, true, 1 / sizes.double(), torch.arange(50), generator=torch.Generator().manual_seed(0)
    )
    possible = [math.log2(math.comb(int(size) + 3, 3)) for size in sizes]
    assert 0 < float(posterior.bits.mean()) <= sum(possible) / len(possible)


@pytest.mark.parametrize("true", [torch.full((12, 4), 0.25), torch.eye(4).repeat(3, 1), torch.eye(20)[:12]])
@pytest.mark.parametrize("same", [True, False])
def test_degenerate_shares_give_finite_bits(true: Tensor, same: bool) -> None:
    true = true.double()
    inferred = true if same else torch.zeros_like(true)
    posterior = found(inferred, true, 20)
    assert bool(posterior.bits.isfinite().all())
    assert bool(posterior.mean.isfinite().all())
