"""A fit's scores in units of their spread, its members' law, its sum over rounds, and its own prediction."""

import dataclasses
import math

import pytest
import torch

from fedleak.attacks.record_membership.update_fit import Fit, predicted_auc, summed_over_rounds
from fedleak.core.scoring import auc_per_victim


def test_scores_of_a_wrong_noise_are_brought_to_their_own_spread() -> None:
    draws, zero = torch.randn(2000, generator=torch.Generator().manual_seed(0)), torch.zeros(2000)
    right = Fit(draws, zero + 2, zero, zero, 1.0, 1.0, 1.0, 1.0)
    wrong = Fit(3 * draws, zero + 2, zero, zero, 1.0, 1.0, 1.0, 1.0)
    assert float(wrong.calibrated().score.std()) == pytest.approx(1.0, abs=0.05)
    assert float(wrong.calibrated().shift[0]) == pytest.approx(2 / 3, abs=0.05)
    assert float(right.calibrated().shift[0]) == pytest.approx(2.0, abs=0.1)


def test_the_prediction_of_equal_shifts_is_the_closed_form() -> None:
    share = torch.full((30,), 0.3)
    for shift in (0.0, 0.5, 2.0):
        expected = float(torch.special.ndtr(torch.tensor(shift / math.sqrt(2))))
        found = Fit(share, torch.full((30,), shift), share, share, 1.0, 1.0, 1.0, 1.0)
        assert predicted_auc(found) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("part", "spread"), [(1.0, 0.0), (0.6, 0.2), (0.8, 0.4)])
@pytest.mark.parametrize("in_pool", [1.0, 0.25])
def test_members_whose_scores_vary_are_not_expected_to_be_certain(part: float, spread: float, in_pool: float) -> None:
    measured, expected = [], []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        member = torch.rand(400, generator=generator) < 0.2 * in_pool
        shift = 5 + torch.rand(400, generator=generator, dtype=torch.float64)
        share = torch.full((400,), 0.2, dtype=torch.float64)
        drawn = part + spread * torch.randn(400, generator=generator, dtype=torch.float64)
        weight = member * drawn.clamp(min=0)
        score = torch.randn(400, generator=generator, dtype=torch.float64) + weight * shift
        found = Fit(score, shift, share, share, 1.0, 1.0, 1.0, 1.0).of_members()
        measured.append(float(auc_per_victim(found.log_odds[None], member[None], torch.ones(1, 400).bool())))
        expected.append(predicted_auc(found))
    assert sum(measured) / 20 == pytest.approx(sum(expected) / 20, abs=0.03)
    assert sum(measured) / 20 < (1.1 if part == 1 else 0.99)


def test_scores_of_noise_promise_nothing() -> None:
    score = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    share = torch.full_like(score, 0.2)
    found = Fit(score, share * 0 + 5, share, share, 1.0, 1.0, 1.0, 1.0)
    assert predicted_auc(found) > 0.99
    assert predicted_auc(found.of_members()) < 0.7


def test_rounds_of_equal_scores_count_once() -> None:
    generator = torch.Generator().manual_seed(0)
    score, zero = torch.randn(500, generator=generator), torch.zeros(500)
    shift = torch.full((500,), 2.0)
    one = Fit(score, shift, zero, zero, 1.0, 1.0, 1.0, 1.0)
    again = summed_over_rounds([one, one, one, one])
    torch.testing.assert_close(again.shift, shift)
    torch.testing.assert_close(again.score, score)
    others = [dataclasses.replace(one, score=torch.randn(500, generator=generator)) for _ in range(3)]
    assert float(summed_over_rounds([one, *others]).shift.mean()) == pytest.approx(4.0, rel=0.1)
