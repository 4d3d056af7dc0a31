"""Clients of a network of convolutions and linear layers with two images each."""

import functools

import torch
from torch import Tensor, nn

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.core.view import RoundView
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.training.network_learner import NetworkLearner

ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1)


class Leaky(NetworkLearner):
    """Two convolutions, a pooling and two linear layers."""

    def __init__(self, local: LocalTraining, hidden: int = 40, *, convolutions: bool = True) -> None:
        super().__init__(local=local)
        front = [nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        width = 16 * 36 if convolutions else 144
        back = [nn.Flatten(), nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 10)]
        self.train_network(nn.Sequential(*(front if convolutions else []), *back))


@functools.cache
def toy(local: LocalTraining = ONE_STEP, hidden: int = 40, *, convolutions: bool = True) -> tuple[RoundView, Tensor]:
    """What a server sees of two clients with two images each, and the images ``(2, 2, 1, 12, 12)``."""
    split = ClientSplit(clients=2, examples_per_client=2)
    data = SyntheticImages(split=split, train_per_class=20, auxiliary_per_class=4, noise=0.2, seed=1)
    learner = Leaky(local, hidden, convolutions=convolutions)
    model = {name: value.clone() for name, value in learner.public_parameters().items()}
    cohort = data.cohort(0)
    known = data.auxiliary()
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(2),
        example_counts=cohort.counts,
        deltas=train_clients(learner.algorithm, model, {}, cohort, local, seed=0).deltas,
        model=model,
        algorithm=learner.algorithm,
        auxiliary={"images": known["image"], "labels": known["label"]},
    )
    return view, cohort.examples["image"]
