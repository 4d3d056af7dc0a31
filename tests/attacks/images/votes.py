"""What a server sees of users who vote, without a training."""

import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from defenses.base import Defense, Update
from modules.learners.image_ranker_learner import ImageRankerLearner
from protocol.view import ServerView


def voting_round(
    models: Mapping[str, Tensor],
    features: Tensor,
    votes: Tensor,
    *,
    defenses: Sequence[Defense] = (),
    generators: Callable[[int], torch.Generator],
) -> ServerView:
    """What the server sees of clients with models ``(V, *shape)`` who vote ``(V, R)`` on items ``(R, F)``."""
    clients, items = votes.shape
    learner = ImageRankerLearner()
    served = features.expand(clients, *features.shape)
    update = Update(learner.simulate_votes(models, served, votes))
    # One generator per client: a fresh one for every parameter would add the same noise to each.
    generators = functools.cache(generators)
    for defense in defenses:
        update = defense.protect(update, generators)
    return ServerView(
        round=0,
        pseudonyms=torch.arange(clients),
        example_counts=torch.full((clients,), items),
        deltas=update.deltas,
        model={},
        client_models=models,
        served=torch.arange(items).expand(clients, -1),
        features=served,
        releases=tuple(release for defense in defenses for release in defense.releases(tuple(models))),
        learner=learner,
    )
