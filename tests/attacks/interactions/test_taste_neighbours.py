"""Taste neighbours find the items of a person's taste among those served, from other people's interactions alone."""

import dataclasses

import pytest
import torch
from torch import Tensor

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.interactions.taste_neighbours import TasteNeighbours
from fedleak.core.errors import ViewError
from fedleak.core.scoring import auc_per_victim
from fedleak.core.view import PUBLIC_INTERACTIONS, RoundView
from tests.attacks.runs import plain_view, run

ITEMS, PEOPLE = 60, 120


def tastes(people: int, seed: int) -> Tensor:
    """``(P, I)`` bool: each person likes about half of a third of the items, which are equally popular."""
    generator = torch.Generator().manual_seed(seed)
    own = torch.arange(people) % 3
    liked = torch.rand(people, ITEMS, generator=generator) < 0.5
    return liked & (torch.arange(ITEMS) % 3 == own[:, None])


def view(likes: Tensor, public: Tensor) -> RoundView:
    served = torch.arange(ITEMS).expand(len(likes), ITEMS)
    return plain_view(len(likes), served=served, auxiliary={PUBLIC_INTERACTIONS: public.nonzero()})


def auc(likes: Tensor, public: Tensor) -> float:
    seen = view(likes, public)
    estimate = run(TasteNeighbours(regularization=20.0), seen, InteractionEstimate)
    estimate.check(seen)
    return float(auc_per_victim(estimate.scores, likes.double(), seen.served_mask).mean())


def test_among_random_items_those_of_one_taste_stand_out() -> None:
    likes = tastes(40, 1)
    asked = likes.clone()
    kept = (torch.rand(likes.shape, generator=torch.Generator().manual_seed(2)) < 0.15) | likes
    seen = view(likes, tastes(PEOPLE, 0))
    served = torch.where(kept, seen.served_items, -1)
    order = (served < 0).int().argsort(dim=1, stable=True)
    seen = dataclasses.replace(seen, served=served.gather(1, order))
    estimate = run(TasteNeighbours(regularization=20.0), seen, InteractionEstimate)
    found = auc_per_victim(estimate.scores, asked.gather(1, order).double(), seen.served_mask)
    assert float(found.mean()) > 0.8


def test_a_public_without_taste_is_at_chance() -> None:
    random = torch.rand(PEOPLE, ITEMS, generator=torch.Generator().manual_seed(5)) < 0.2
    assert abs(auc(tastes(60, 1), random) - 0.5) < 0.05


@pytest.mark.parametrize(
    "public", [torch.zeros(0, 2).long(), torch.ones(4, 3).long(), torch.tensor([[0, -1]]), torch.tensor([[0, 30_000]])]
)
def test_what_are_no_interactions_is_refused(public: Tensor) -> None:
    seen = dataclasses.replace(view(tastes(3, 0), tastes(3, 1)), auxiliary={PUBLIC_INTERACTIONS: public})
    with pytest.raises(ViewError, match="expected"):
        run(TasteNeighbours(), seen, InteractionEstimate)
