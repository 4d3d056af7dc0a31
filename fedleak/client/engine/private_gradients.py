"""Gradients of DP-SGD: clipped for each example, summed, and noised in every step of a client.

References:
    [Abadi16], Algorithm 1.
"""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.task import Task
from fedleak.core.errors import require

_EXAMPLES_AT_ONCE = 64
"""Examples whose gradients are in memory together."""


def private_gradients(
    task: Task,
    parameters: Parameters,
    examples: Parameters,
    mask: Tensor,
    local: LocalTraining,
    generators: Sequence[torch.Generator],
) -> tuple[Tensor, Parameters]:
    """Mean losses of stacked clients, and their noisy gradients.

    A gradient is the sum over the batch's examples of gradients clipped to the norm C, plus noise ``N(0, (z C)^2)`` on
    each number, divided by the number of examples, for ``C = local.example_clip`` and ``z = local.noise_multiplier``.

    Args:
        task: training objective, whose loss is a mean over examples.
        parameters: ``(B, *shape)`` each.
        examples: ``(B, N, ...)`` each.
        mask: ``(B, N)`` True for real examples.
        local: hyper-parameters.
        generators: source of each client's noise.
    """
    assert local.example_clip is not None
    detached = {name: value.detach() for name, value in parameters.items()}
    clipped = functools.partial(_clipped, task, clip=local.example_clip)
    losses, sums = torch.vmap(clipped, randomness="different")(detached, examples, mask)
    # Noise z C on each number of the sum, which is then divided by the number of examples.
    scale = local.example_clip * local.noise_multiplier
    counts = mask.sum(1).clamp(min=1)
    noisy = {}
    for name, value in sums.items():
        if scale:
            of_clients = [torch.randn(value.shape[1:], generator=g, dtype=value.dtype) for g in generators]
            draws = torch.stack(of_clients)
            value = value + scale * draws.to(value.device)
        noisy[name] = value / counts.reshape(-1, *[1] * (value.dim() - 1))
    return losses, noisy


def _clipped(
    task: Task, trained: Parameters, examples: Parameters, mask: Tensor, *, clip: float
) -> tuple[Tensor, Parameters]:
    """Mean loss of one client, and the sum of its examples' clipped gradients."""

    def loss(trained: Parameters, example: Parameters, real: Tensor) -> Tensor:
        return task.loss(trained, {name: value[None] for name, value in example.items()}, real[None])

    gradient_and_loss = torch.func.grad_and_value(loss)
    chunk = min(_EXAMPLES_AT_ONCE, len(mask))
    every = torch.func.vmap(gradient_and_loss, in_dims=(None, 0, 0), randomness="different", chunk_size=chunk)
    grads, losses = every(trained, examples, mask)
    # The norm is that of an example's whole gradient, over all parameters; its factor is min(1, C / norm).
    squares = [value.flatten(1).square().sum(1) for value in grads.values()]
    norms = torch.stack(squares).sum(0).sqrt()
    factors = (clip / norms.clamp(min=1e-12)).clamp(max=1) * mask
    sums = {name: torch.tensordot(factors, value, dims=1) for name, value in grads.items()}
    return (losses * mask).sum() / mask.sum().clamp(min=1), sums


def check_private(task: Task, *, rows: bool, private: bool) -> None:
    """Checks that a task's loss is a mean over examples that do not influence each other.

    Raises:
        InputError: the task is none of a network, or has rows of a table, private parameters, or batch norms.
    """
    obstacles = []
    if not task.layers:
        obstacles.append(type(task).__name__)
    if rows:
        obstacles.append("rows of a table")
    if private:
        obstacles.append("private parameters")
    # Batch norm makes the gradient of an example depend on the others.
    obstacles += sorted({type(layer).__name__ for layer in task.layers if "BatchNorm" in type(layer).__name__})
    require(
        not obstacles,
        "for local.example_clip, a network that learns from independent examples",
        ", ".join(obstacles),
        "Leave local.example_clip out, or set model.network.norm: none or another network.",
    )
