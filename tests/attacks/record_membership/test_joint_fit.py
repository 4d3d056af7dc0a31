"""The joint fit against a slow reference, exact cases, its law under noise, and its own prediction."""

import dataclasses
import math

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from fedleak.attacks.record_membership.joint_fit import Basis, fit
from fedleak.attacks.record_membership.update_fit import Fit, predicted_auc
from fedleak.core.scoring import auc_per_victim


def effects(candidates: int = 30, numbers: int = 200, *, seed: int = 0) -> Tensor:
    """Effects that resemble each other: a direction in common, and lengths of their own."""
    generator = torch.Generator().manual_seed(seed)
    own = torch.randn(candidates, numbers, generator=generator, dtype=torch.float64)
    common = torch.randn(numbers, generator=generator, dtype=torch.float64)
    return (own + common) * torch.rand(candidates, 1, generator=generator, dtype=torch.float64).add(0.5)


def members(candidates: int, *, seed: int = 0) -> Tensor:
    return torch.rand(candidates, generator=torch.Generator().manual_seed(seed + 1000)) < 0.4


def fitted(rows: Tensor, update: Tensor, *, noise: float = 0.0, classes: int = 2, records: int = 12) -> Fit:
    labels = torch.arange(len(rows)) % classes
    return fit(Basis.of(rows @ rows.T), rows @ update, labels, records=records, noise=noise)


def test_orthogonal_effects_are_solved_exactly() -> None:
    rows, member = torch.eye(40, dtype=torch.float64)[:20] * 3, members(20)
    found = fitted(rows, rows[member].sum(0))
    assert torch.allclose(found.weight, member.double(), atol=1e-4)
    assert ((found.log_odds > 0) == member).all()


def test_any_independent_effects_are_solved_exactly() -> None:
    rows, member = effects(), members(30)
    found = fitted(rows, rows[member].sum(0))
    assert torch.allclose(found.weight, member.double(), atol=1e-3)
    assert ((found.log_odds > 0) == member).all()


@pytest.mark.parametrize("noise", [0.5, 5.0])
def test_score_and_shift_are_those_of_the_slow_reference(noise: float) -> None:
    """Generalised least squares with the covariance ``(D, D)`` of all other candidates, one candidate at a time."""
    rows, member = effects(12, 40), members(12)
    update = rows[member].sum(0) + noise * torch.randn(40, generator=torch.Generator().manual_seed(5))
    found = fitted(rows, update, noise=noise)
    of_class = torch.nn.functional.one_hot(torch.arange(12) % 2).double()
    design = rows.T @ of_class
    whole = found.spread**2 * rows.T @ rows + found.noise**2 * torch.eye(40)
    prior = torch.linalg.inv(found.class_spread**2 * torch.eye(2).double() + 1)
    precision = design.T @ torch.linalg.solve(whole, design) + prior
    means = torch.linalg.solve(precision, design.T @ torch.linalg.solve(whole, update))
    for number, row in enumerate(rows):
        others = whole - found.spread**2 * row[:, None] * row
        left = update - design @ means + row * means[number % 2]
        way = torch.linalg.solve(others, row)
        length = (row @ way).sqrt()
        assert float(found.shift[number]) == pytest.approx(float(length), rel=1e-6)
        assert float(found.score[number]) == pytest.approx(float(way @ left / length), rel=1e-5, abs=1e-6)


def test_equal_candidates_share_the_evidence() -> None:
    rows, member = effects(), members(30)
    member[3], member[4] = True, False
    rows[4] = rows[3]
    labels = torch.zeros(30, dtype=torch.int64)
    found = fit(Basis.of(rows @ rows.T), rows @ rows[member].sum(0), labels, records=12)
    assert float(found.log_odds[3]) == pytest.approx(float(found.log_odds[4]), rel=1e-3)
    assert float(found.log_odds[3]) < float(found.log_odds[member & (torch.arange(30) != 3)].min())


def test_the_score_of_noise_alone_is_standard_normal() -> None:
    rows, found = effects(), []
    for seed in range(40):
        noise = 0.1 * torch.randn(200, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        found += fitted(rows, noise, noise=0.1).score[seed % 10 :: 10].tolist()
    assert kstest(found, "norm").pvalue > 0.01


def test_one_candidate_is_ordered_as_by_the_cosine() -> None:
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(1, 50, generator=generator, dtype=torch.float64)
    updates = torch.nn.functional.normalize(torch.randn(15, 50, generator=generator, dtype=torch.float64) + row, dim=1)
    cosine = torch.nn.functional.cosine_similarity(updates, row)
    score = torch.stack([fitted(row, update, noise=0.2, classes=1).score[0] for update in updates])
    assert torch.equal(score.argsort(), cosine.argsort())


@pytest.mark.parametrize("noise", [5.0, 40.0])
def test_the_predicted_auc_is_that_of_many_updates(noise: float) -> None:
    rows, measured, expected = effects(60, 300), [], []
    for seed in range(30):
        member = members(60, seed=seed)
        draws = torch.randn(300, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        update = rows[member].sum(0) + noise * draws
        found = fitted(rows, update, noise=noise, classes=1, records=int(member.sum()))
        everything = torch.ones(1, 60, dtype=torch.bool)
        measured.append(float(auc_per_victim(found.log_odds[None], member[None], everything)))
        expected.append(predicted_auc(found))
    assert sum(measured) / 30 == pytest.approx(sum(expected) / 30, abs=0.03)


@pytest.mark.parametrize("noise", [3.0, 100.0])
def test_the_prediction_is_near_guessing_where_noise_hides_everything(noise: float) -> None:
    """The means of the classes are not told apart by the noise on them."""
    predicted = []
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(10, (200,), generator=generator)
        classes = torch.randn(10, 1000, generator=generator, dtype=torch.float64)
        own = torch.randn(200, 1000, generator=generator, dtype=torch.float64)
        rows = (classes[labels] + own) / 1000**0.5
        member = torch.rand(200, generator=generator) < 0.5
        update = rows[member].sum(0) + 10 * noise * torch.randn(1000, generator=generator, dtype=torch.float64)
        found = fit(Basis.of(rows @ rows.T), rows @ update, labels, records=100, noise=10 * noise)
        predicted.append(predicted_auc(found))
    assert 0.5 <= sum(predicted) / 6 < 0.53


@pytest.mark.parametrize(("factor", "refuted"), [(1.0, False), (-1.0, True), (0.1, True), (2.0, True)])
def test_weights_that_add_to_another_number_than_the_records_refute_the_fit(factor: float, refuted: bool) -> None:
    """Steps of another size, and a wrong sign."""
    rows, member = effects(60, 300), members(60)
    noise = torch.randn(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    update = factor * rows[member].sum(0) + 0.3 * noise
    found = seen(fitted(rows, update, classes=1, records=int(member.sum())), update)
    assert found.refuted == refuted
    assert math.isnan(predicted_auc(found)) == refuted


def test_an_update_of_noise_refutes_the_fit_of_a_few_candidates() -> None:
    rows, member = effects(60, 3000), members(60)
    noise = torch.randn(3000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert seen(fitted(rows, noise, classes=1, records=int(member.sum())), noise).refuted


def test_records_outside_the_pool_that_no_candidate_resembles_refute_nothing() -> None:
    """Most of the update is of other records, so that the weights add to those in the pool alone."""
    rows, member = torch.randn(40, 3000, generator=torch.Generator().manual_seed(0)).double(), members(20)
    update = rows[:20][member].sum(0) + rows[20:].sum(0)
    found = seen(fitted(rows[:20], update, classes=1, records=int(member.sum()) + 20), update)
    assert not found.refuted


def seen(found: Fit, update: Tensor) -> Fit:
    return dataclasses.replace(found, energy=float(update.square().sum()), numbers=len(update))


def test_weights_that_noise_hides_refute_nothing() -> None:
    rows, member = effects(60, 300), members(60)
    noise = 1000 * torch.randn(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = fitted(rows, rows[member].sum(0) + noise, noise=1000.0, classes=1, records=int(member.sum()))
    assert not found.refuted
