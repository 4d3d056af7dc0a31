"""Losses and gradients of single records under models of clients that train a network."""

from collections.abc import Mapping

import torch
from torch import Tensor

from client.engine.fast.gradients import Parameters
from client.network import NetworkAlgorithm
from protocol.errors import ViewError

_AT_ONCE = 128
"""Records whose losses or gradients are computed together."""


@torch.no_grad()
def record_losses(algorithm: NetworkAlgorithm, models: Mapping[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
    """``(B, M)`` loss of each of M records ``(M, *shape)``, ``(M,)`` under models ``(B, *shape)``."""
    _check_independent(algorithm)
    own = algorithm.trained(models)
    parts = torch.split(torch.arange(len(labels)), _AT_ONCE)

    def losses(model: Parameters) -> Tensor:
        return torch.cat([algorithm.record_losses(model, inputs[part], labels[part]) for part in parts])

    count = len(next(iter(own.values())))
    return torch.stack([losses({name: value[place] for name, value in own.items()}) for place in range(count)])


def record_gradients(
    algorithm: NetworkAlgorithm, model: Mapping[str, Tensor], inputs: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """Gradients ``(M, *shape)`` by parameter of the losses of single records ``(M, *shape)``, ``(M,)``."""
    _check_independent(algorithm)

    def loss(parameters: Parameters, record: Tensor, label: Tensor) -> Tensor:
        return algorithm.record_losses(parameters, record[None], label[None])[0]

    every = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0), chunk_size=_AT_ONCE)
    found: dict[str, Tensor] = every(algorithm.trained(model), inputs, labels)
    return found


def weighted_gradient(
    algorithm: NetworkAlgorithm, model: Mapping[str, Tensor], inputs: Tensor, labels: Tensor, weights: Tensor
) -> dict[str, Tensor]:
    """Gradient ``shape`` by parameter of the sum of M records' losses with weights ``(M,)``."""
    _check_independent(algorithm)
    own = {name: value.detach().requires_grad_() for name, value in algorithm.trained(model).items()}
    total = {name: torch.zeros_like(value) for name, value in own.items()}
    for part in torch.split(torch.arange(len(labels)), _AT_ONCE):
        loss = weights[part] @ algorithm.record_losses(own, inputs[part], labels[part])
        for value, gradient in zip(total.values(), torch.autograd.grad(loss, list(own.values())), strict=True):
            value += gradient
    return total


def _check_independent(algorithm: NetworkAlgorithm) -> None:
    if any("BatchNorm" in type(layer).__name__ for layer in algorithm.layers):
        raise ViewError("expected clients whose records do not influence each other, got a network with batch norm")
