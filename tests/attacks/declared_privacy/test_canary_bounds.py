"""Canary bounds: coins of a leaky toy, chance without a link to the updates, verdicts, and bad input."""

import dataclasses
import math

import pytest
import torch

from fedleak.attacks.declared_privacy.canary_bounds import CanaryBounds, CoinGuess
from fedleak.attacks.declared_privacy.canary_estimate import CanaryEstimate
from fedleak.core.errors import ViewError
from fedleak.core.view import CANARY_PLUS, CANARY_PSEUDONYMS
from tests.attacks.declared_privacy.canaries import SIZE, scored, toy, value
from tests.attacks.runs import of_others


@pytest.mark.parametrize("minus", [False, True])
def test_bounds_of_honest_noise_are_below_the_declared_epsilon(minus: bool) -> None:
    view, truth = toy(minus=minus)
    scores = scored(view, truth)
    assert value(scores, "coin") > (0.65 if minus else 0.75)
    for name in ("epsilon-cp", "epsilon-one-run", "epsilon-one-run-fdp"):
        assert 0 < value(scores, name) < 8
    assert (2 if minus else 6) < value(scores, "epsilon-gdp") < 8.6
    assert all(row["declared"] == pytest.approx(8, abs=0.02) for row in scores.details)
    assert "cannot exceed" in str(scores.details[0]["note"])


def test_distances_and_rounds_by_hand() -> None:
    """A canary sends in two rounds of three, another in the third, with worlds a quarter as far apart."""
    view, _ = toy(count=3, rounds=3)
    sends = view.select(torch.tensor([0, 3, 7]))
    priors = {f"{CANARY_PLUS}w": 0.5 * torch.eye(3, SIZE) * torch.tensor([[1.0], [1.0], [0.25]])}
    found = CanaryBounds()(dataclasses.replace(sends, priors=priors), generator=torch.Generator().manual_seed(1))
    assert isinstance(found, CanaryEstimate)
    assert found.clients.tolist() == [0, 1]
    # In units of the largest distance of one message, which is 1 by default.
    assert found.distances.tolist() == pytest.approx([2**0.5, 0.25])
    assert found.rounds == 3
    summed = dataclasses.replace(sends, priors=priors, messages=torch.tensor([2, 3, 5]))
    in_one = dataclasses.replace(summed, sent_in=torch.zeros(3).long(), pseudonyms=torch.arange(3))
    found = CanaryBounds()(in_one, generator=torch.Generator().manual_seed(1))
    assert isinstance(found, CanaryEstimate)
    assert found.rounds == 5


def test_half_of_the_noise_is_refuted() -> None:
    view, truth = toy(count=200, times=0.5)
    scores = scored(view, truth)
    assert value(scores, "epsilon-gdp") > 8
    assert str(scores.details[-1]["verdict"]).startswith("refuted")


def test_rounds_compose() -> None:
    one, four = (scored(*toy(rounds=rounds)) for rounds in (1, 4))
    assert four.details[0]["declared"] == pytest.approx(19.1, abs=0.5)
    assert value(four, "epsilon-gdp") > 2 * value(one, "epsilon-gdp")


def test_updates_of_other_clients_and_a_guess_tell_nothing() -> None:
    view, truth = toy()
    for scores in (scored(of_others(view), truth), scored(view, truth, CoinGuess())):
        assert value(scores, "coin") == pytest.approx(0.5, abs=0.08)
        assert value(scores, "epsilon-cp") < 0.3


def test_noise_that_is_no_gaussian_gives_no_gaussian_bound() -> None:
    view, truth = toy(count=2000)
    coins = torch.where(torch.rand(2000, 1, generator=torch.Generator().manual_seed(2)) < 0.5, 0.2, 2.0)
    directions = view.priors[f"{CANARY_PLUS}w"] / view.priors[f"{CANARY_PLUS}w"].norm(dim=1, keepdim=True)
    along = (view.deltas["w"] * directions).sum(1, keepdim=True) * directions
    mixed = dataclasses.replace(view, deltas={"w": view.deltas["w"] + (coins - 1) * along})
    scores = scored(mixed, truth)
    assert "epsilon-gdp" not in scores.metrics
    assert "not Gaussian" in str(scores.details[-1]["verdict"])


def test_too_few_canaries_say_how_many_are_needed() -> None:
    view, truth = toy(count=8)
    with pytest.raises(ViewError, match="at least 12"):
        scored(view, truth)


def test_missing_coins_and_worlds_are_named() -> None:
    view, truth = toy(count=40)
    with pytest.raises(ViewError, match="coin"):
        scored(view, {"coin": torch.zeros_like(truth["coin"])})
    with pytest.raises(ViewError, match="would send"):
        scored(dataclasses.replace(view, priors={}), truth)
    with pytest.raises(ViewError, match="no message"):
        scored(dataclasses.replace(view, auxiliary={CANARY_PSEUDONYMS: torch.tensor([10**6])}), truth)


def test_without_declared_noise_nothing_is_refuted() -> None:
    view, truth = toy()
    scores = scored(dataclasses.replace(view, releases=()), truth)
    assert {row["declared"] for row in scores.details} == {None}
    assert math.isfinite(value(scores, "epsilon-cp"))
