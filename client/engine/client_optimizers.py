"""Optimizers of local training; all are elementwise, so stacked clients train like single clients."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from client.engine.fast.optimizers import fast_optimizer
from client.engine.local_hyperparameters import LocalTraining


class ClientOptimizer(Protocol):
    """Optimizer that updates parameters in place."""

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Updates every parameter, given a gradient for each."""


def build_optimizer(local: LocalTraining, parameters: Sequence[Tensor]) -> ClientOptimizer:
    """Optimizer of one client or of stacked clients.

    Args:
        local: hyper-parameters.
        parameters: leaf tensors.
    """
    if local.fast:
        return fast_optimizer(local, list(parameters))
    return _AdamEpsRoot(local, parameters) if local.eps_root else _TorchOptimizer(local, parameters)


class _TorchOptimizer:
    """Adapter of `torch.optim`."""

    def __init__(self, local: LocalTraining, parameters: Sequence[Tensor]) -> None:
        self.parameters = parameters
        decay = local.weight_decay
        self.optimizer: torch.optim.Optimizer
        if local.optimizer == "sgd":
            self.optimizer = torch.optim.SGD(
                parameters, lr=local.learning_rate, momentum=local.momentum, weight_decay=decay
            )
        elif local.optimizer == "adam":
            self.optimizer = torch.optim.Adam(
                parameters, lr=local.learning_rate, betas=local.betas, eps=local.eps, weight_decay=decay
            )
        else:
            self.optimizer = torch.optim.Adadelta(
                parameters, lr=local.learning_rate, rho=local.rho, eps=local.eps, weight_decay=decay
            )

    def step(self, gradients: Sequence[Tensor]) -> None:
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()


class _AdamEpsRoot:
    """Adam with the step ``m / (sqrt(v + eps_root) + eps)``, which `torch.optim` lacks."""

    def __init__(self, local: LocalTraining, parameters: Sequence[Tensor]) -> None:
        self.local, self.parameters, self.count = local, parameters, 0
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        (beta1, beta2), self.count = self.local.betas, self.count + 1
        for parameter, gradient, (first, second) in zip(self.parameters, gradients, self.moments, strict=True):
            first.lerp_(gradient, 1 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            root = (second / (1 - beta2**self.count) + self.local.eps_root).sqrt()
            parameter -= self.local.learning_rate / (1 - beta1**self.count) * first / (root + self.local.eps)
