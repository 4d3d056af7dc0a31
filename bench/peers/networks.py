"""The jobs' networks in plain torch, with their losses."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.peers.protocol import Job, Weights


class ImageNetwork(nn.Module):
    """Two convolutions, a pooling, two linear layers.

    Args:
        channels: channels of the images.
        size: height and width of the images.
        classes: number of classes.
    """

    def __init__(self, channels: int, size: int, classes: int) -> None:
        super().__init__()
        flat = 64 * ((size - 4) // 2) ** 2
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(flat, 128), nn.ReLU()),
        )
        self.output = nn.Linear(128, classes)

    def forward(self, images: Tensor) -> Tensor:
        """``(N, c, h, w)`` -> logits ``(N, K)``."""
        logits: Tensor = self.output(self.body(images))
        return logits

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy."""
        return functional.cross_entropy(self(images), labels)


class InteractionNetwork(nn.Module):
    """Item embeddings and a network over [user, item]; the user's vector is a parameter that is never sent.

    Args:
        items: items in the catalogue.
        dim: length of both vectors.
        hidden: widths of the hidden layers.
    """

    def __init__(self, items: int, dim: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.user: nn.Parameter = nn.Parameter(torch.zeros(dim), requires_grad=False)
        self.item_embedding = nn.Embedding(items, dim)
        layers: list[nn.Module] = []
        for before, after in zip((2 * dim, *hidden), hidden, strict=False):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.mlp = nn.Sequential(*layers, nn.Linear(hidden[-1], 1))

    def forward(self, items: Tensor) -> Tensor:
        """``(N,)`` -> logits ``(N,)``."""
        pairs = torch.cat([self.user.expand(len(items), -1), self.item_embedding(items)], dim=1)
        logits: Tensor = self.mlp(pairs).squeeze(1)
        return logits

    def loss(self, items: Tensor, labels: Tensor) -> Tensor:
        """Mean binary cross-entropy."""
        return functional.binary_cross_entropy_with_logits(self(items), labels)


Network = ImageNetwork | InteractionNetwork


def network_of(job: Job) -> Network:
    """The job's network with its initial weights."""
    made = empty_network(job)
    with torch.no_grad():
        for name, value in public_of(made):
            value.copy_(torch.from_numpy(job.weights[name]))
    return made


def empty_network(job: Job) -> Network:
    """The job's network."""
    if job.plan.kind == "images":
        _, _, channels, size, _ = job.arrays["images"].shape
        return ImageNetwork(channels, size, job.plan.classes)
    items, dim = job.weights["item_embedding.weight"].shape
    return InteractionNetwork(items, dim, (64, 32))


def public_of(network: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters that clients send."""
    return ((name, value) for name, value in network.named_parameters() if name != "user")


def weights_of(network: nn.Module) -> Weights:
    """The public parameters as arrays."""
    return {name: value.detach().numpy().copy() for name, value in public_of(network)}


def optimizer_of(job: Job, parameters: Any, lr: float | None = None) -> torch.optim.Optimizer:
    """A client's optimizer."""
    lr = job.plan.learning_rate if lr is None else lr
    return torch.optim.Adam(parameters, lr=lr) if job.plan.optimizer == "adam" else torch.optim.SGD(parameters, lr=lr)


def batches_of(job: Job, number: int, place: int) -> Iterator[list[Tensor]]:
    """The mini-batches of a client of a round, in order, for every epoch."""
    images = job.plan.kind == "images"
    arrays = job.images(number, place) if images else job.pairs(int(job.cohorts[number, place]))
    tensors = [torch.from_numpy(np.asarray(array)) for array in arrays]
    size = job.plan.batch_size or len(tensors[0])
    for _ in range(job.plan.epochs):
        yield from (list(batch) for batch in zip(*(torch.split(tensor, size) for tensor in tensors), strict=True))
