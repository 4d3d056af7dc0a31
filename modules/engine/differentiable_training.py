"""Full-batch local training that is differentiable in the labels (RAIFLE, section IV.A)."""

from collections.abc import Callable

import torch
from torch import Tensor

from modules.engine.fast.gradients import Parameters
from modules.engine.local_hyperparameters import LocalTraining
from protocol.errors import require

_SAFE_ROOT = 1e-30
"""Smallest term in Adam's square root, whose gradient is infinite at zero."""


def train_differentiably(start: Parameters, loss: Callable[[Parameters], Tensor], local: LocalTraining) -> Parameters:
    """Trained parameters of stacked clients, with their autograd graph.

    Args:
        start: initial parameters, ``(B, ...)`` each.
        loss: sum of the stacked clients' mean losses.
        local: optimizer and number of epochs; batches contain all of a client's examples.

    Raises:
        InputError: the optimizer is not differentiable here, or training uses mini-batches.
    """
    plain = local.optimizer != "adadelta" and local.batch_size is None and not local.momentum
    require(
        plain and not local.weight_decay,
        "full-batch SGD or Adam without momentum and weight decay",
        f"{local.optimizer}, batch size {local.batch_size}, momentum {local.momentum}, decay {local.weight_decay}",
        "Use an attack that does not differentiate through local training, e.g. direction.",
    )
    current = {name: value if value.requires_grad else value.detach().requires_grad_() for name, value in start.items()}
    steps = {name: _Adam(local) if local.optimizer == "adam" else _Sgd(local) for name in start}
    for _ in range(local.epochs):
        names = list(current)
        grads = torch.autograd.grad(loss(current), [current[n] for n in names], create_graph=True)
        current = {name: steps[name](current[name], grad) for name, grad in zip(names, grads, strict=True)}
    return current


class _Sgd:
    def __init__(self, local: LocalTraining) -> None:
        self.learning_rate = local.learning_rate

    def __call__(self, value: Tensor, grad: Tensor) -> Tensor:
        return value - self.learning_rate * grad


class _Adam:
    def __init__(self, local: LocalTraining) -> None:
        self.local = local
        self.steps = 0
        self.first: Tensor | float = 0.0
        self.second: Tensor | float = 0.0

    def __call__(self, value: Tensor, grad: Tensor) -> Tensor:
        beta1, beta2 = self.local.betas
        self.steps += 1
        self.first = beta1 * self.first + (1 - beta1) * grad
        self.second = beta2 * self.second + (1 - beta2) * grad**2
        root = (self.second / (1 - beta2**self.steps) + max(self.local.eps_root, _SAFE_ROOT)).sqrt()
        return value - self.local.learning_rate * (self.first / (1 - beta1**self.steps)) / (root + self.local.eps)
