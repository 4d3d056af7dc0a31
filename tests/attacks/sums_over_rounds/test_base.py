"""Class shares behind sums: whole numbers where certain, otherwise without bias; the lengths; predicted widths."""

import dataclasses

import pytest
import torch
from torch import Tensor

from fedleak.attacks.composition.output_counts import OutputCounts
from fedleak.attacks.sums_over_rounds.base import class_sums, lengths, predicted_widths, shuffled_participants
from fedleak.attacks.sums_over_rounds.received_sums import Participants
from fedleak.attacks.sums_over_rounds.tracking import SumsOf
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from tests.attacks.runs import with_noise
from tests.composition_toys import views
from tests.sum_toys import summed

STEP = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=None)
GROUPS = [torch.tensor(group) for group in ([0, 3, 5, 9], [1, 2, 3, 4], [5, 6, 7, 8])]


def sums_of(view: RoundView) -> tuple[SumsOf, Participants]:
    history = summed([view] * 3, GROUPS)
    participants = Participants.of(history)
    found, rounds = class_sums(history, participants, 100, generator=generator_for(0, "attack"))
    assert len(rounds) == 3
    assert all(part.view.deltas == {} and part.view.model == {} for part in rounds)
    again, _ = class_sums(history, participants, 100, generator=generator_for(1, "attack"))
    assert again is found
    return found, participants


def test_shares_of_a_sum_are_whole_numbers_of_all_its_examples() -> None:
    (view,), shares = views(STEP)
    found, participants = sums_of(view)
    assert participants.clients.tolist() == list(range(100, 110))
    assert list(found.noise) == [0.0] * 3
    assert not found.declared
    for group, own, weights in zip(GROUPS, found.observed, found.weights, strict=True):
        torch.testing.assert_close(own[0], shares[group].mean(0), atol=1e-9, rtol=0)
        expected = torch.zeros(10, dtype=torch.float64)
        expected[group] = 0.25
        torch.testing.assert_close(weights[0], expected)


def test_shares_under_declared_noise_are_the_linear_ones_with_their_variance() -> None:
    (view,), _ = views(STEP)
    found, _ = sums_of(with_noise(view, 0.001))
    assert found.declared
    assert min(found.noise) > 0
    assert bool((found.observed[0] * 480 != (found.observed[0] * 480).round()).all())


def test_linear_shares_of_the_mean_update_are_the_mean_of_linear_shares() -> None:
    (view,), _ = views(STEP)
    alone, _ = OutputCounts().linear_shares(view, generator=generator_for(0, "attack"))
    mean = {name: value.mean(0, keepdim=True) for name, value in view.deltas.items()}
    joined = dataclasses.replace(view.select(torch.tensor([0])), deltas=mean)
    together, _ = OutputCounts().linear_shares(joined, generator=generator_for(0, "attack"))
    torch.testing.assert_close(together[0], alone.mean(0), atol=1e-6, rtol=1e-4)


def test_lengths_are_those_below_the_recordings_and_that() -> None:
    assert lengths((1, 5, 10, 20), 10) == [1, 5, 10]
    assert lengths((20,), 3) == [3]


def test_shuffled_participants_keep_the_sums() -> None:
    weights = [torch.tensor([[0.5, 0.5, 0.0]]).double(), torch.tensor([[0.0, 0.5, 0.5]]).double()]
    observed: list[Tensor] = [torch.rand(1, 2).double()] * 2
    orders = [torch.tensor([2, 0, 1]), torch.tensor([0, 2, 1])]
    found = shuffled_participants(SumsOf(weights, observed), orders)
    assert [own.tolist() for own in found.weights] == [[[0.0, 0.5, 0.5]], [[0.0, 0.5, 0.5]]]
    assert found.observed is observed


def test_predicted_widths_are_wider_under_declared_noise() -> None:
    weights = [torch.eye(3).double() for _ in range(2)]
    observed = [torch.full((3, 4), 0.25).double()] * 2
    plain = predicted_widths(SumsOf(weights, observed), 4)
    noisy = predicted_widths(SumsOf(weights, observed, [0.01, 0.01], declared=True), 4)
    assert float(plain.max()) < 1e-3  # each client's update is in a sum of its own
    # The mean of two rounds; the prior, of a spread of 0.2 about a mean that is hardly known, takes little away.
    upper = 2 * 1.96 * (0.01 / 2) ** 0.5
    assert float(noisy[1].max()) == pytest.approx(upper, rel=0.2)
    assert float(noisy[1].max()) < upper
