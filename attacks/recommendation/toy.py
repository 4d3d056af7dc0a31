"""Clients of a recommender who interacted with a fifth of the items that they were served."""

import itertools

import torch
from torch import Tensor

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.fncf import FNCFAlgorithm
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING, POPULARITY, RoundView

CLIENTS, ITEMS, SERVED = 4, 120, 60
DIM = 16
WIDTHS = (2 * DIM, 16, 8, 1)
"""Inputs of the network, its hidden units, and its logit."""
SHARE = 0.2


def toy() -> tuple[RoundView, dict[str, Tensor]]:
    """What the server sees of clients after local training, and their ``labels (V, R)``."""
    generator = generator_for(0, "recommendation toy")
    model = {ITEM_EMBEDDING: torch.randn(ITEMS, DIM, generator=generator)}
    for depth, (inputs, outputs) in enumerate(itertools.pairwise(WIDTHS)):
        # Uniform weights with a bound of one over the root of the inputs, as PyTorch draws them.
        bound = inputs**-0.5
        model[f"mlp.{2 * depth}.weight"] = bound * (2 * torch.rand(outputs, inputs, generator=generator) - 1)
        model[f"mlp.{2 * depth}.bias"] = bound * (2 * torch.rand(outputs, generator=generator) - 1)

    served = torch.stack([torch.randperm(ITEMS, generator=generator)[:SERVED] for _ in range(CLIENTS)])
    labels = (torch.rand(CLIENTS, SERVED, generator=generator) < SHARE).float()
    algorithm = FNCFAlgorithm(
        user_dim=DIM, local=LocalTraining(optimizer="adam", learning_rate=0.001, epochs=20, eps_root=1e-8)
    )
    users = torch.randn(CLIENTS, DIM, generator=generator)
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(CLIENTS),
        example_counts=torch.full((CLIENTS,), SERVED),
        deltas={ITEM_EMBEDDING: algorithm.simulate(model, served, labels, users)[ITEM_EMBEDDING]},
        model=model,
        row_parameters=frozenset([ITEM_EMBEDDING]),
        served=served,
        algorithm=algorithm,
        priors={POPULARITY: torch.zeros(served.shape)},
    )
    return view, {"labels": labels}
