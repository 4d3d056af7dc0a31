"""Clients who vote on images, whose features the server chose at random."""

import torch
from torch import Tensor

from fedleak.client.pointwise_descent import VoteAlgorithm
from fedleak.client.ranking import ranker_parameters
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView

CLIENTS, ITEMS, FEATURES = 12, 20, 30
SCALE = 2.0
"""Standard deviation of the features."""


def toy() -> tuple[RoundView, dict[str, Tensor]]:
    """What the server sees of clients that each train a linear ranker of their own, and their votes, ``labels``."""
    generator = generator_for(0, "images toy")
    features = SCALE * torch.randn(ITEMS, FEATURES, generator=generator)
    votes = torch.rand(CLIENTS, ITEMS, generator=generator).round()
    rankers = [ranker_parameters(FEATURES, 0, generator, scaled=True) for _ in range(CLIENTS)]
    models = {name: torch.stack([ranker[name] for ranker in rankers]) for name in rankers[0]}
    algorithm = VoteAlgorithm()
    served = features.expand(CLIENTS, ITEMS, FEATURES)
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(CLIENTS),
        example_counts=torch.full((CLIENTS,), ITEMS),
        deltas=algorithm.simulate_votes(models, served, votes),
        model={},
        client_models=models,
        served=torch.arange(ITEMS).expand(CLIENTS, ITEMS),
        features=served,
        algorithm=algorithm,
    )
    return view, {"labels": votes}
