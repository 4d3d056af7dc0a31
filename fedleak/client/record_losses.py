"""Losses of single records under a client's algorithm, and their gradients."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedleak.client.algorithm import RecordAlgorithm
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.core.errors import ViewError

_AT_ONCE = 128
"""Records whose losses or gradients are computed together."""
_SLOW = 1e9
"""Operations for the gradient of a large network of a long text, whose logits alone may take 50 MB."""
_SLOW_AT_ONCE = 8


@torch.no_grad()
def record_losses(algorithm: RecordAlgorithm, models: Mapping[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
    """``(B, M)`` loss of each of M records ``(M, *shape)``, ``(M,)`` under models ``(B, *shape)``."""
    _check_independent(algorithm)
    trained = algorithm.trained(models)
    inputs = algorithm.read(inputs)
    parts = torch.split(torch.arange(len(labels)), _at_once(algorithm, inputs))

    def losses(model: Parameters) -> Tensor:
        return torch.cat([algorithm.record_losses(model, inputs[part], labels[part]) for part in parts])

    count = len(next(iter(trained.values())))
    of_models = []
    for index in range(count):
        model = {name: value[index] for name, value in trained.items()}
        of_models.append(losses(model))
    return torch.stack(of_models)


def record_gradients(
    algorithm: RecordAlgorithm, model: Mapping[str, Tensor], inputs: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """Gradients ``(M, *shape)`` by parameter of the losses of single records ``(M, *shape)``, ``(M,)``.

    All of a chunk at once, where torch can: networks that look at values to decide what to compute, as those of the
    transformers library do that ask whether a text is padded, are given one record at a time.
    """
    _check_independent(algorithm)
    inputs = algorithm.read(inputs)

    def loss(parameters: Parameters, record: Tensor, label: Tensor) -> Tensor:
        return algorithm.record_losses(parameters, record[None], label[None])[0]

    every = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0), chunk_size=_at_once(algorithm, inputs))
    try:
        gradients: dict[str, Tensor] = every(algorithm.trained(model), inputs, labels)
    except RuntimeError as error:
        if "control flow" not in str(error):
            raise
        return _one_by_one(loss, algorithm.trained(model), inputs, labels)
    return gradients


def _one_by_one(
    loss: Callable[[Parameters, Tensor, Tensor], Tensor], model: Parameters, inputs: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """The same gradients by one backward pass for each record."""
    leaves = {name: value.detach().requires_grad_() for name, value in model.items()}
    gradients = {name: value.new_zeros(len(labels), *value.shape) for name, value in model.items()}
    for number, (record, label) in enumerate(zip(inputs, labels, strict=True)):
        loss_of_record = loss(leaves, record, label)
        parts = torch.autograd.grad(loss_of_record, list(leaves.values()), materialize_grads=True)
        for rows, part in zip(gradients.values(), parts, strict=True):
            rows[number] = part
    return gradients


def weighted_gradient(
    algorithm: RecordAlgorithm, model: Mapping[str, Tensor], inputs: Tensor, labels: Tensor, weights: Tensor
) -> dict[str, Tensor]:
    """Gradient ``shape`` by parameter of the sum of M records' losses with weights ``(M,)``."""
    _check_independent(algorithm)
    inputs = algorithm.read(inputs)
    leaves = {name: value.detach().requires_grad_() for name, value in algorithm.trained(model).items()}
    total = {name: torch.zeros_like(value) for name, value in leaves.items()}
    for part in torch.split(torch.arange(len(labels)), _at_once(algorithm, inputs)):
        loss = weights[part] @ algorithm.record_losses(leaves, inputs[part], labels[part])
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        for value, gradient in zip(total.values(), gradients, strict=True):
            value += gradient
    return total


def _at_once(algorithm: RecordAlgorithm, inputs: Tensor) -> int:
    """Number of records ``(M, *shape)`` that memory holds together."""
    if algorithm.gradient_work(inputs) < _SLOW:
        return _AT_ONCE
    return _SLOW_AT_ONCE


def _check_independent(algorithm: RecordAlgorithm) -> None:
    if not algorithm.independent:
        raise ViewError("expected clients whose records do not influence each other, got a network with batch norm")
