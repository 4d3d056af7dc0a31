"""The clients' optimizers: torch's functions, which act on each number by itself, so on stacked clients as on one.

torch's classes around these functions look for a GPU in every step; once Lightning is loaded, that takes longer than
the step.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adadelta import adadelta
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from modules.engine.local_hyperparameters import LocalTraining


class ClientOptimizer(Protocol):
    """Changes parameters in place."""

    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step of every parameter, given a gradient for each."""


def build_optimizer(local: LocalTraining, parameters: Iterable[Tensor]) -> ClientOptimizer:
    """The optimizer of one client, or of many stacked ones.

    Args:
        local: the hyper-parameters.
        parameters: leaf tensors.
    """
    leaves = list(parameters)
    if local.optimizer == "sgd":
        return _SGD(local, leaves)
    if local.optimizer == "adadelta":
        return _Adadelta(local, leaves)
    return _AdamEpsRoot(local, leaves) if local.eps_root else _Adam(local, leaves)


class _Steps:
    """What the optimizers share.

    Args:
        local: the hyper-parameters.
        parameters: the tensors to change.
    """

    def __init__(self, local: LocalTraining, parameters: list[Tensor]) -> None:
        self.local, self.parameters = local, parameters
        # The fused kernels of the CPU take the numbers as they lie in memory, whatever the strides.
        self.fused = True if all(parameter.is_contiguous() for parameter in parameters) else None

    def zeros(self) -> list[Tensor]:
        """A state of zeros for each parameter."""
        return [torch.zeros_like(parameter) for parameter in self.parameters]

    def counters(self) -> list[Tensor]:
        """A counter of steps for each parameter."""
        return [torch.zeros((), device=p.device if self.fused else None) for p in self.parameters]


class _SGD(_Steps):
    def __init__(self, local: LocalTraining, parameters: list[Tensor]) -> None:
        super().__init__(local, parameters)
        self._buffers: list[Tensor | None] = [None] * len(parameters)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """See `ClientOptimizer`."""
        sgd(
            self.parameters,
            list(gradients),
            self._buffers,
            fused=self.fused,
            lr=self.local.learning_rate,
            momentum=self.local.momentum,
            weight_decay=self.local.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


class _Adam(_Steps):
    def __init__(self, local: LocalTraining, parameters: list[Tensor]) -> None:
        super().__init__(local, parameters)
        self._first, self._second, self._counters = self.zeros(), self.zeros(), self.counters()

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """See `ClientOptimizer`."""
        beta1, beta2 = self.local.betas
        adam(
            self.parameters,
            list(gradients),
            self._first,
            self._second,
            [],
            self._counters,
            fused=self.fused,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=self.local.learning_rate,
            weight_decay=self.local.weight_decay,
            eps=self.local.eps,
            maximize=False,
        )


class _AdamEpsRoot(_Steps):
    """Adam whose step is ``m / (sqrt(v + eps_root) + eps)``, as TorchOpt and Optax have it.

    RAIFLE's published clients train with ``eps_root = 1e-8``. It is no detail: at gradients near 1e-4 and below it
    turns Adam's step of constant length into one that grows with the gradient.
    """

    def __init__(self, local: LocalTraining, parameters: list[Tensor]) -> None:
        super().__init__(local, parameters)
        self._first, self._second, self._count = self.zeros(), self.zeros(), 0

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """See `ClientOptimizer`."""
        local, gradients = self.local, list(gradients)
        beta1, beta2 = local.betas
        self._count += 1
        torch._foreach_lerp_(self._first, gradients, 1 - beta1)
        torch._foreach_mul_(self._second, beta2)
        torch._foreach_addcmul_(self._second, gradients, gradients, 1 - beta2)
        roots = torch._foreach_div(self._second, 1 - beta2**self._count)
        torch._foreach_add_(roots, local.eps_root)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, local.eps)
        torch._foreach_addcdiv_(self.parameters, self._first, roots, -local.learning_rate / (1 - beta1**self._count))


class _Adadelta(_Steps):
    def __init__(self, local: LocalTraining, parameters: list[Tensor]) -> None:
        super().__init__(local, parameters)
        self._squares, self._changes, self._counters = self.zeros(), self.zeros(), self.counters()

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """See `ClientOptimizer`."""
        adadelta(
            self.parameters,
            list(gradients),
            self._squares,
            self._changes,
            self._counters,
            lr=self.local.learning_rate,
            rho=self.local.rho,
            eps=self.local.eps,
            weight_decay=self.local.weight_decay,
            maximize=False,
        )
