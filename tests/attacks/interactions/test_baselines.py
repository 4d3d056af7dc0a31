"""Baselines read no update: they score the same whatever the clients sent."""

import dataclasses

import pytest
import torch

from attacks.base import Attack
from attacks.interactions import Chance, Popularity
from attacks.interactions.baselines import two_means
from attacks.interactions.estimates import InteractionEstimate
from attacks.scoring import auc_per_victim
from protocol.errors import ViewError
from protocol.seeding import generator_for
from protocol.view import ITEM_EMBEDDING, POPULARITY, RoundView
from tests.toys import leaky_view


def estimate(attack: Attack, view: RoundView) -> InteractionEstimate:
    found = attack(view, generator=generator_for(0, "attack"))
    assert isinstance(found, InteractionEstimate)
    return found


@pytest.mark.parametrize("attack", [Chance(), Popularity()], ids=repr)
def test_the_update_changes_nothing(attack: Attack) -> None:
    view, _ = leaky_view(victims=4)
    silent = dataclasses.replace(view, deltas={ITEM_EMBEDDING: torch.zeros_like(view.deltas[ITEM_EMBEDDING])})
    assert torch.equal(estimate(attack, view).scores, estimate(attack, silent).scores)


def test_guessing_is_at_chance_and_decides_as_often_as_it_says() -> None:
    (view, labels), often = leaky_view(victims=4), torch.arange(4).repeat(10)
    view, labels = view.select(often), labels[often]
    found = estimate(Chance(positive_share=0.3), view)
    assert float(auc_per_victim(found.scores, labels, view.served_mask).mean()) == pytest.approx(0.5, abs=0.03)
    assert float(found.decisions[view.served_mask].double().mean()) == pytest.approx(0.3, abs=0.03)
    with pytest.raises(ValueError, match="positive_share"):
        Chance(positive_share=1)


def test_what_others_like_is_only_as_good_as_the_prior() -> None:
    view, labels = leaky_view(victims=4)
    known = dataclasses.replace(view, priors={POPULARITY: 10 * labels})
    assert float(auc_per_victim(estimate(Popularity(), known).scores, labels, view.served_mask).mean()) == 1
    assert torch.equal(estimate(Popularity(), known).decisions, labels > 0.5)
    with pytest.raises(ViewError, match="priors:popularity"):
        estimate(Popularity(), dataclasses.replace(view, priors={}))


def test_two_means_finds_the_gap() -> None:
    values = torch.tensor([[0.1, 0.2, 5.0, 0.15, 9.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    mask = torch.tensor([[True, True, True, True, False], [True] * 5])
    assert two_means(values, mask).tolist() == [[False, False, True, False, False], [False] * 5]
