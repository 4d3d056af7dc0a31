"""Noise of the order of mini-batches: against a slow reference, and what knowing its covariance gains."""

import pytest
import torch
from torch import Tensor

from fedleak.attacks.record_membership.batch_order import whitened
from fedleak.attacks.record_membership.joint_fit import Basis, fit, without_common_noise
from fedleak.attacks.record_membership.update_fit import Fit
from fedleak.core.scoring import auc_per_victim

WEIGHTS = (0.3, 0.5, 0.2)
CANDIDATES, NUMBERS = 60, 200


def gradients(seed: int = 0) -> Tensor:
    """``(P, M, D)`` gradients at three places, which differ in some directions."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(CANDIDATES, NUMBERS, generator=generator, dtype=torch.float64)
    ways = torch.randn(40, NUMBERS, generator=generator, dtype=torch.float64)
    own = torch.randn(3, CANDIDATES, 40, generator=generator, dtype=torch.float64) @ ways
    return mean + own


def products(places: Tensor, updates: Tensor) -> tuple[Tensor, Tensor, list[tuple[Tensor, float]]]:
    """Gram matrix of the mean gradients, their products with updates ``(V, D)``, and those of the deviations."""
    mean = torch.einsum("p,pmd->md", torch.tensor(WEIGHTS, dtype=torch.float64), places)
    inner = [((place - mean) @ mean.T, weight) for place, weight in zip(places, WEIGHTS, strict=True)]
    return mean @ mean.T, mean @ updates.T, inner


def test_the_metric_is_that_of_the_slow_reference() -> None:
    places, updates = gradients(), torch.randn(2, NUMBERS, generator=torch.Generator().manual_seed(1)).double()
    found, seen, _ = whitened(*products(places, updates), records=90)
    mean = torch.einsum("p,pmd->md", torch.tensor(WEIGHTS, dtype=torch.float64), places)
    span = torch.linalg.qr(mean.T)[0]  # (D, M), orthonormal columns
    noise = torch.zeros(CANDIDATES, CANDIDATES, dtype=torch.float64)
    for place, weight in zip(places, WEIGHTS, strict=True):
        deviation = place - mean
        inside = (deviation - deviation.mean(0)) @ span
        noise += 90 / CANDIDATES * weight * inside.T @ inside
    noise += 0.01 * noise.trace() / CANDIDATES * torch.eye(CANDIDATES, dtype=torch.float64)
    effects = mean @ span
    torch.testing.assert_close(found, effects @ torch.linalg.solve(noise, effects.T), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(seen, effects @ torch.linalg.solve(noise, span.T @ updates.T), rtol=1e-6, atol=1e-9)


def fitted(gram: Tensor, seen: Tensor) -> Fit:
    return fit(Basis.of(gram), seen, torch.zeros(CANDIDATES, dtype=torch.int64), records=20)


def test_whitening_finds_more_members_after_batches_in_a_random_order() -> None:
    plain, white = list[float](), list[float]()
    everything = torch.ones(1, CANDIDATES, dtype=torch.bool)
    for seed in range(8):
        places, generator = gradients(seed), torch.Generator().manual_seed(seed)
        member = torch.rand(CANDIDATES, generator=generator) < 0.3
        place = torch.multinomial(torch.tensor(WEIGHTS), CANDIDATES, replacement=True, generator=generator)
        update = places[place, torch.arange(CANDIDATES)][member].sum(0)
        gram, seen, deviations = products(places, update[None])
        for scores, one in ((plain, (gram, seen)), (white, whitened(gram, seen, deviations, records=20)[:2])):
            found = fitted(one[0], one[1][:, 0])
            scores.append(float(auc_per_victim(found.log_odds[None], member[None], everything)))
    assert sum(white) / 8 > sum(plain) / 8 + 0.05, (plain, white)


def test_equal_gradients_at_all_places_leave_the_metric_as_it_is() -> None:
    places = gradients()[:1].repeat(3, 1, 1)
    gram, seen, deviations = products(places, torch.ones(1, NUMBERS, dtype=torch.float64))
    zero = [(torch.zeros_like(inner), weight) for inner, weight in deviations]
    found = whitened(gram, seen, zero, records=20)
    assert torch.equal(found[0], gram)
    assert torch.equal(found[1], seen)


def test_noise_that_all_clients_share_is_subtracted() -> None:
    """Without it the weights are nearer to 1 and 0."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.exp(-torch.arange(NUMBERS, dtype=torch.float64) / 10)
    effects = torch.randn(CANDIDATES, NUMBERS, generator=generator, dtype=torch.float64) * sizes
    member = torch.rand(10, CANDIDATES, generator=generator) < 0.3
    shared = 0.1 * torch.randn(NUMBERS, generator=generator, dtype=torch.float64)
    labels = torch.zeros(CANDIDATES, dtype=torch.int64)
    seen = effects @ (member.double() @ effects + shared).T
    first = fitted(effects @ effects.T, seen[:, 0])
    cleaned = without_common_noise(Basis.of(effects @ effects.T), seen, labels, first, 0)
    second = fitted(effects @ effects.T, cleaned)
    errors = [float((one.mean - member[0].double()).square().mean()) for one in (first, second)]
    assert errors[1] < 0.7 * errors[0]


def test_one_client_alone_shares_no_noise() -> None:
    effects = torch.randn(CANDIDATES, NUMBERS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gram, seen = effects @ effects.T, effects @ effects[:5].sum(0)[:, None]
    labels = torch.zeros(CANDIDATES, dtype=torch.int64)
    left = without_common_noise(Basis.of(gram), seen, labels, fitted(gram, seen[:, 0]), 0)
    assert left.tolist() == pytest.approx(seen[:, 0].tolist())
