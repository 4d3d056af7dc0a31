"""Full-batch local training with the graph kept, so that gradients reach the labels (RAIFLE, section IV.A)."""

from collections.abc import Callable

import torch
from torch import Tensor

from errors import InputError
from modules.local_optimizers import LocalTraining
from modules.local_training import Parameters

_SAFE_ROOT = 1e-30
"""Added under Adam's root, where the gradient of the root is infinite at zero (the published code adds 1e-8 there)."""


def train_differentiably(start: Parameters, loss: Callable[[Parameters], Tensor], local: LocalTraining) -> Parameters:
    """Trains stacked parameters and returns them with their graph.

    Args:
        start: parameters, ``(B, ...)`` each.
        loss: sum over the stacked clients of their mean losses.
        local: optimizer and epochs; the batch is always all of a client's examples.
    """
    if local.optimizer == "adadelta" or local.batch_size is not None or local.momentum or local.weight_decay:
        raise InputError(
            expected="full-batch SGD without momentum, or full-batch Adam",
            found=f"{local.optimizer}, batch size {local.batch_size}, momentum {local.momentum}",
            way_out="Use an attack that does not differentiate through local training, e.g. direction.",
        )
    step = _adam_step if local.optimizer == "adam" else _sgd_step
    current = {name: value if value.requires_grad else value.detach().requires_grad_() for name, value in start.items()}
    state: dict[str, tuple[Tensor, Tensor]] = {}
    for epoch in range(1, local.epochs + 1):
        names = list(current)
        grads = torch.autograd.grad(loss(current), [current[n] for n in names], create_graph=True)
        current = {
            name: step(name, current[name], grad, state, local, epoch) for name, grad in zip(names, grads, strict=True)
        }
    return current


def _sgd_step(
    name: str, value: Tensor, grad: Tensor, state: dict[str, tuple[Tensor, Tensor]], local: LocalTraining, epoch: int
) -> Tensor:
    return value - local.learning_rate * grad


def _adam_step(
    name: str, value: Tensor, grad: Tensor, state: dict[str, tuple[Tensor, Tensor]], local: LocalTraining, epoch: int
) -> Tensor:
    first, second = state.get(name, (torch.zeros_like(value), torch.zeros_like(value)))
    beta1, beta2 = local.betas
    first = beta1 * first + (1 - beta1) * grad
    second = beta2 * second + (1 - beta2) * grad**2
    state[name] = first, second
    root = (second / (1 - beta2**epoch) + _SAFE_ROOT).sqrt()
    return value - local.learning_rate * (first / (1 - beta1**epoch)) / (root + local.eps)
