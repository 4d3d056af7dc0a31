"""Clients whose private vectors follow from the messages of a campaign of probes."""

import dataclasses

import torch

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.margin_losses import LossName
from fedleak.client.matrix_factorization import MFAlgorithm
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING, LEANING, RoundView
from fedleak.server.probe_answers import Answering, Probed, answer_zeros
from tests.attacks.runs import plain_view

Victims = tuple[RoundView, dict[str, torch.Tensor]]


def campaign(
    *, rate: float, interactions: int, noise: float, victims: int = 24, loss: LossName = "log", labels_each: int = 100
) -> Victims:
    """What a server has of clients after Protocol 2, and the truth."""
    generator = generator_for(0, "campaign", int(100 * rate), interactions)
    table = torch.randn(300, 16, generator=generator, dtype=torch.float64)
    users = torch.randn(victims, 16, generator=generator, dtype=torch.float64)
    items = torch.stack([torch.randperm(300, generator=generator)[:labels_each] for _ in range(victims)])
    labels = torch.rand(items.shape, generator=generator).argsort(1) < round(rate * labels_each)
    probed = Probed.start(users, items, labels)
    how = Answering(loss=loss, noise=noise)
    calls = torch.full((victims,), float(interactions))
    answer_zeros(probed, how, interactions=calls, generator=generator)
    view = plain_view(
        victims,
        example_counts=probed.counts,
        deltas={ITEM_EMBEDDING: probed.sums},
        model={ITEM_EMBEDDING: table},
        row_parameters=frozenset([ITEM_EMBEDDING]),
        served=torch.where(probed.updates > 0, items, -1),
        updates=probed.updates,
        releases=(Release(noise_scale=noise, parameters=(ITEM_EMBEDDING,)),),
        algorithm=MFAlgorithm(dim=16, margin_loss=loss, local=LocalTraining(learning_rate=how.learning_rate)),
        priors={LEANING: torch.full((victims,), 1.0 if rate > 0.5 else -1.0)},
    )
    return view, {"user_vector": users, "labels": labels.float()}


def agreeing(victims: Victims, *, taste: float) -> Victims:
    """The same draws for clients whose vectors share a direction, every third of whom has all labels negated."""
    view, truth = victims
    users, labels = truth["user_vector"], truth["labels"]
    alike = torch.where((users.sum(1) < 0)[:, None], -users, users) + taste
    turned = torch.where((torch.arange(len(users)) % 3 == 0)[:, None], 1 - labels, labels)
    assert view.updates is not None
    steps = [0.05 * ((2 * y - 1) * view.updates)[..., None] * u[:, None] for y, u in ((labels, users), (turned, alike))]
    deltas = {ITEM_EMBEDDING: view.deltas[ITEM_EMBEDDING] - steps[0] + steps[1]}
    return dataclasses.replace(view, deltas=deltas, priors={}), {"user_vector": alike, "labels": turned}
