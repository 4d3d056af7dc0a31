"""What each label changes in an update: clients simulated with one label turned over at a time."""

from typing import Any

import torch
from torch import Tensor

from attacks.ranking.lists import ranked_lists
from evaluation.noise_floor import numbers
from protocol.simulators import RankingSimulator, RecommenderSimulator
from protocol.view import ServerView

_MOST_ITEMS = 400
"""Labels up to which a client is simulated once for each."""


def label_effects(view: ServerView, victim: int, *, generator: torch.Generator) -> Tensor | None:
    """``(R, D)`` change of a victim's whole update by each of its labels; None where it cannot be simulated.

    Args:
        view: what the server has.
        victim: its place.
        generator: of the private vector, which is unknown.
    """
    items = int(view.served_mask[victim].sum())
    if not 0 < items <= _MOST_ITEMS or view.learner is None:
        return None
    if isinstance(view.learner, RankingSimulator):
        return _in_lists(view, victim, view.learner)
    if not isinstance(view.learner, RecommenderSimulator) or view.served is None:
        return None
    learner = view.learner
    served = view.served[victim, :items].expand(items + 1, items)
    labels = torch.cat([torch.zeros(1, items), torch.eye(items)])
    user = torch.randn(1, learner.user_dim, generator=generator).expand(items + 1, -1)
    return _differences(learner.simulate(view.model, served, labels, user), list(view.deltas))


def numbers_sent(view: ServerView) -> Tensor:
    """``(V,)`` how many numbers each victim sent."""
    return torch.stack([numbers(view, name) for name in view.deltas]).sum(0)


def _in_lists(view: ServerView, victim: int, learner: RankingSimulator) -> Tensor | None:
    if view.lists is None or view.features is None:
        return None
    lists = ranked_lists(view)
    assert lists.features is not None
    mask, features = lists.mask[victim], lists.features[victim]
    place = lists.place[victim][view.served_mask[victim]]
    even = mask.float() / 2
    turned = even.repeat(len(place), 1, 1)
    turned.flatten(1)[torch.arange(len(place)), place] = 1
    clicks = torch.cat([even[None], turned])
    wide: dict[str, Any] = {
        "features": features.expand(len(clicks), *features.shape),
        "mask": mask.expand(len(clicks), *mask.shape),
    }
    return _differences(learner.simulate_lists(view.model, clicks=clicks, **wide), list(view.deltas))


def _differences(deltas: dict[str, Tensor], names: list[str]) -> Tensor:
    flat = torch.cat([deltas[name].flatten(1) for name in names if name in deltas], dim=1).double()
    return flat[1:] - flat[0]
