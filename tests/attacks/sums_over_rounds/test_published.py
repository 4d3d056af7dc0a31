"""Published attacks on sums over rounds, against their equations by hand and on the updates that they assume."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.attacks.composition.output_counts import OutputCounts
from fedleak.attacks.sums_over_rounds.estimates import SharesOverRounds
from fedleak.attacks.sums_over_rounds.published import RidgeOnSums, SeparatedUpdates
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, run
from tests.composition_toys import l1, views
from tests.sum_toys import summed

STEP = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=None)
CLIENTS = 10


def groups(rounds: int) -> list[Tensor]:
    return [torch.randperm(CLIENTS, generator=generator_for(n, "group"))[:4].sort().values for n in range(rounds)]


def test_ridge_on_sums_is_ridge_regression_on_who_took_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The linear model of a round is replaced by the truth, so that what is tested is the regression."""
    (view,), true = views(STEP)
    chosen = groups(6)

    def outputs(self: RidgeOnSums, part: RoundView, size: int, generator: torch.Generator) -> Tensor:
        assert size == 120
        return true[chosen[part.round]].mean(0, keepdim=True)

    monkeypatch.setattr(RidgeOnSums, "_shares", outputs)
    history = summed([view] * 6, chosen)
    found = run(RidgeOnSums(after=(3,), ridge=2.0), history, SharesOverRounds)
    for place, rounds in enumerate(found.after.tolist()):
        design = torch.zeros(rounds, CLIENTS, dtype=torch.float64)
        for number in range(rounds):
            design[number, chosen[number]] = 1
        values = torch.stack([true[group].sum(0) for group in chosen[:rounds]])
        solved = torch.linalg.inv(design.T @ design + 2.0 * torch.eye(CLIENTS).double()) @ design.T @ values
        solved = solved.clamp(min=0)
        total = solved.sum(1, keepdim=True)
        expected = torch.where(total > 1e-9, solved / total, 0.1)
        own = found.senders - 100
        torch.testing.assert_close(found.shares[place], expected[own], atol=1e-6, rtol=0)
    assert found.low.isnan().all()


def test_the_linear_model_of_a_round_says_more_than_its_mean_and_nothing_of_noise() -> None:
    (view,), true = views(STEP)
    attack: Any = RidgeOnSums(simulated=60)
    for seen, better in ((view, True), (of_noise(view), False)):
        found = attack._shares(seen, 120, generator_for(0, "attack")).clamp(min=0)
        found = found / found.sum(1, keepdim=True)
        assert (l1(found, true) < 0.5 * l1(true.mean(0, keepdim=True).expand_as(true), true)) == better


def test_separated_updates_are_the_clients_own_if_these_are_the_same_in_every_round() -> None:
    (view,), true = views(STEP)
    history = summed([view] * 16, groups(16))
    found = run(SeparatedUpdates(after=(2,)), history, SharesOverRounds)
    own, _ = OutputCounts().linear_shares(view, generator=generator_for(0, "attack"))
    own = own.clamp(min=0)
    torch.testing.assert_close(found.shares[-1], own / own.sum(1, keepdim=True), atol=1e-3, rtol=0)
    assert l1(found.shares[-1], true) < 0.1 < l1(found.shares[0], true)


def test_updates_that_change_between_rounds_are_not_separated() -> None:
    rounds, true = views(STEP, rounds=3)
    moving = [dataclasses.replace(rounds[number % 3], earlier=()) for number in range(16)]
    other = [of_noise(view, number) for number, view in enumerate(moving)]
    found = run(SeparatedUpdates(), summed(other, groups(16)), SharesOverRounds)
    assert l1(found.shares[-1], true) > 0.8 * l1(true.mean(0, keepdim=True).expand_as(true), true)


@pytest.mark.parametrize("attack", [RidgeOnSums(), SeparatedUpdates()])
def test_updates_of_single_clients_are_refused(attack: Any) -> None:
    (view,), _ = views(STEP)
    history = dataclasses.replace(summed([view], groups(1)), participants=None)
    with pytest.raises(ViewError, match="participants"):
        run(attack, history, SharesOverRounds)
