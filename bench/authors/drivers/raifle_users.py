"""Common to both attacks on users in RAIFLE's code: its network, its local training and the inputs as tensors."""

import importlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from bench.authors.drivers.sources import SOURCES, authors_modules, notebook_function
from bench.authors.host import Arrays, part

CODE = SOURCES / "code"
LEARNING_RATE, EPOCHS = 0.001, 20
Train = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Minus the update ``(R, d)`` of item embeddings ``(R, d)``, for a user ``(d,)`` and interactions ``(R,)``."""


def local_training(inputs: Arrays) -> Train:
    """The notebook's local training with a contest's network."""
    (ranker,) = authors_modules(CODE, "ranker")
    scope = {**{name: importlib.import_module(name) for name in ("functorch", "torchopt")}, "F": torch.nn.functional}
    train = notebook_function(CODE / "experiment_rec.ipynb", "train_fncf_functional", scope)
    layers = {name: value for name, value in part(inputs, "model").items() if name.startswith("mlp.")}
    weights = sorted((int(name.split(".")[1]), name) for name in layers if name.endswith("weight"))
    sizes = [len(layers[name]) for _, name in weights]
    network = ranker.NeuralCollaborativeFilteringRecommender(layers[weights[0][1]].shape[1] // 2, sizes[:-1])
    linear = [network.first_layer, *network.fc_layers, network.final_layer]
    with torch.no_grad():
        for layer, (_, name) in zip(linear, weights, strict=True):
            layer.weight.copy_(torch.from_numpy(layers[name]))
            layer.bias.copy_(torch.from_numpy(layers[name.replace("weight", "bias")]))

    def of_user(user: Tensor, items: Tensor, interactions: Tensor) -> Tensor:
        change: Tensor = train(network, user, items, interactions, EPOCHS, LEARNING_RATE, 0.0)[0]
        return change

    return of_user


def victims(inputs: Arrays) -> Iterator[tuple[Tensor, Tensor]]:
    """Item embeddings ``(R, d)`` and minus the received update ``(R, d)`` of each victim."""
    table = torch.from_numpy(inputs["model/item_embedding.weight"])
    for served, delta in zip(inputs["served"], inputs["deltas"], strict=True):
        real = torch.from_numpy(served[served >= 0])
        yield table[real].requires_grad_(), -torch.from_numpy(delta[: len(real)])
