"""Clients of a network with one output, for a yes or no or for a number."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.training.network_learner import NetworkLearner

CLIENTS, EXAMPLES = 12, 60


STEP = LocalTraining(optimizer="sgd", learning_rate=0.5)


def logit_loss(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.float(), reduction=reduction)


def squared_loss(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    return functional.mse_loss(outputs[:, 0], targets, reduction=reduction)


class Small(NetworkLearner):
    """A hidden layer and one output."""

    def __init__(self, local: LocalTraining, loss: Callable[..., Tensor]) -> None:
        super().__init__(local=local)
        self.train_network(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)), loss)


@functools.cache
def toy(local: LocalTraining = STEP, *, binary: bool = True) -> tuple[RoundView, dict[str, Tensor]]:
    """What a server sees of clients with shares from 0 to 1, or with other mean targets, and the truth."""
    draw = generator_for(0, "toy")
    learner = Small(local, logit_loss if binary else squared_loss)
    levels = torch.linspace(0, 1, CLIENTS)[torch.randperm(CLIENTS, generator=draw), None]
    targets = (torch.rand(CLIENTS, EXAMPLES, generator=draw) < levels).float()
    if not binary:
        targets = 10 * levels + torch.randn(CLIENTS, EXAMPLES, generator=draw)
    inputs = torch.randn(CLIENTS, EXAMPLES, 6, generator=draw) + 0.1 * targets[..., None]
    cohort = Cohort(
        0,
        torch.arange(CLIENTS),
        {"image": inputs, "label": targets},
        torch.ones(CLIENTS, EXAMPLES, dtype=torch.bool),
    )
    model = {name: value.clone() for name, value in learner.public_parameters().items()}
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(CLIENTS),
        example_counts=cohort.counts,
        deltas=train_clients(learner.algorithm, model, {}, cohort, local, seed=0).deltas,
        model=model,
        algorithm=learner.algorithm,
    )
    return view, learner.client_truth(cohort)
