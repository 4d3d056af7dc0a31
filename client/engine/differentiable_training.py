"""Local training that is differentiable in the examples (RAIFLE, section IV.A)."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from client.engine.fast.gradients import Parameters
from client.engine.local_hyperparameters import LocalTraining
from protocol.errors import require

_WAY_OUT = "Use an attack that does not differentiate through local training, e.g. direction."
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
    require(local.batch_size is None, "full-batch SGD or Adam", f"batch size {local.batch_size}", _WAY_OUT)
    return descend(start, [loss] * local.epochs, local)


def descend(start: Parameters, losses: Sequence[Callable[[Parameters], Tensor]], local: LocalTraining) -> Parameters:
    """Parameters of stacked clients after one step on each loss, with their autograd graph.

    Args:
        start: initial parameters, ``(B, ...)`` each.
        losses: by step, the sum of the stacked clients' mean losses.
        local: optimizer.

    Raises:
        InputError: the optimizer is not differentiable here.
    """
    require(
        local.optimizer != "adadelta" and not local.momentum and not local.weight_decay and not local.example_clip,
        "SGD or Adam without momentum, weight decay and clipped examples",
        f"{local.optimizer}, momentum {local.momentum}, decay {local.weight_decay}, clip {local.example_clip}",
        _WAY_OUT,
    )
    current = {name: value if value.requires_grad else value.detach().requires_grad_() for name, value in start.items()}

    def sgd(value: Tensor, grad: Tensor) -> Tensor:
        return value - local.learning_rate * grad

    steps = {name: _Adam(local) if local.optimizer == "adam" else sgd for name in start}
    for loss in losses:
        grads = torch.autograd.grad(loss(current), list(current.values()), create_graph=True)
        current = {name: steps[name](current[name], grad) for name, grad in zip(current, grads, strict=True)}
    return current


class _Adam:
    def __init__(self, local: LocalTraining) -> None:
        self.local, self.steps, self.moments = local, 0, list[Tensor]()

    def __call__(self, value: Tensor, grad: Tensor) -> Tensor:
        self.steps += 1
        first, second = self.moments or (torch.zeros_like(value), torch.zeros_like(value))
        moved, *self.moments = _AdamStep.apply(value, grad, first, second, self.local, self.steps)
        return cast(Tensor, moved)


class _AdamStep(torch.autograd.Function):
    """A step of Adam and its derivative, which needs a third of the memory and time of autograd's."""

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, grad: Tensor, first: Tensor, second: Tensor, local: LocalTraining, steps: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        (beta1, beta2), root = local.betas, max(local.eps_root, _SAFE_ROOT)
        ctx.constants = beta1, beta2, 1 - beta2**steps, local.learning_rate / (1 - beta1**steps), local.eps
        first = torch.lerp(first, grad, 1 - beta1)
        second = torch.mul(second, beta2).addcmul_(grad, grad, value=1 - beta2)
        scale = torch.div(second, 1 - beta2**steps).add_(root).sqrt_()
        ctx.save_for_backward(grad, first, scale)
        return torch.addcdiv(value, first, scale + local.eps, value=-ctx.constants[3]), first, second

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
        beta1, beta2, unbias, rate, eps = ctx.constants
        grad, first, scale = ctx.saved_tensors
        by_value, by_first, by_second = by
        whole = scale + eps
        step = by_value / whole
        by_first = torch.add(by_first, step, alpha=-rate)
        by_second = torch.addcdiv(by_second, step.mul_(first).div_(whole), scale, value=rate / (2 * unbias))
        by_grad = torch.mul(by_first, 1 - beta1).addcmul_(grad, by_second, value=2 * (1 - beta2))
        return by_value, by_grad, by_first.mul_(beta1), by_second.mul_(beta2), None, None
