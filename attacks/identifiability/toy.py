"""Clients of a matrix factorisation who answer the zeros of a campaign of probes."""

from typing import Literal

import torch
from torch import Tensor

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.matrix_factorization import MFAlgorithm
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING, LEANING, RoundView
from fedleak.server.probe_answers import Answering, Probed, answer_zeros

CLIENTS, ITEMS, RATED, DIM = 24, 300, 100, 16
LIKED = 20
"""Items that each client likes, of those that it rated."""
INTERACTIONS = 40
TASTE = 0.7
"""Mean of each coordinate of clients of one taste."""
Kind = Literal["leaning", "catalogue", "consensus"]
"""What says which of a vector and its opposite is the client's: that clients are known to dislike most of what they
rated, the mean item of the catalogue, or that most clients are of one taste."""


def toy(kind: Kind = "leaning") -> tuple[RoundView, dict[str, Tensor]]:
    """What the server has after the campaign, and the private ``user_vector (V, d)`` and ``labels (V, R)``."""
    generator = generator_for(0, "identifiability toy")
    table = torch.randn(ITEMS, DIM, generator=generator, dtype=torch.float64)
    users = torch.randn(CLIENTS, DIM, generator=generator, dtype=torch.float64)
    if kind == "catalogue":
        # The mean item lies on the far side of all clients, who dislike most items.
        away = users.mean(0) + 1
        users = torch.where((users @ away < 0)[:, None], -users, users)
        table = table - 3 * away
    if kind == "consensus":
        users = torch.where((users.sum(1) < 0)[:, None], -users, users) + TASTE
    items = torch.stack([torch.randperm(ITEMS, generator=generator)[:RATED] for _ in range(CLIENTS)])
    labels = torch.rand(items.shape, generator=generator).argsort(1) < LIKED
    if kind == "consensus":
        # Two of three clients like most of what they rated.
        labels = labels ^ (torch.arange(CLIENTS) % 3 > 0)[:, None]
    probed = Probed.start(users, items, labels)
    answering = Answering(loss="log", noise=0.0)
    answer_zeros(probed, answering, interactions=torch.full((CLIENTS,), float(INTERACTIONS)), generator=generator)
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(CLIENTS),
        example_counts=probed.counts,
        deltas={ITEM_EMBEDDING: probed.sums},
        model={ITEM_EMBEDDING: table},
        row_parameters=frozenset([ITEM_EMBEDDING]),
        served=torch.where(probed.updates > 0, items, -1),
        updates=probed.updates,
        releases=(Release(noise_scale=0.0, parameters=(ITEM_EMBEDDING,)),),
        algorithm=MFAlgorithm(dim=DIM, margin_loss="log", local=LocalTraining(learning_rate=answering.learning_rate)),
        priors={LEANING: torch.full((CLIENTS,), -1.0)} if kind == "leaning" else {},
    )
    return view, {"user_vector": users, "labels": labels.float()}
