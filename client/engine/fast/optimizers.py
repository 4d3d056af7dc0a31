"""Client optimizers on torch's functional kernels.

The classes of `torch.optim` look for a GPU in every step, which takes longer than the step once Lightning is imported.
"""

import abc
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adadelta import adadelta
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from client.engine.local_hyperparameters import LocalTraining


def fast_optimizer(local: LocalTraining, parameters: list[Tensor]) -> "_Steps":
    """Optimizer of one client or stacked clients."""
    if local.optimizer == "sgd":
        return _SGD(local, parameters)
    if local.optimizer == "adadelta":
        return _Adadelta(local, parameters)
    return _AdamEpsRoot(local, parameters) if local.eps_root else _Adam(local, parameters)


class _Steps(abc.ABC):
    """State and options of an optimizer.

    Args:
        local: hyper-parameters.
        parameters: tensors to update.
    """

    def __init__(self, local: LocalTraining, parameters: list[Tensor]) -> None:
        self.local, self.parameters = local, parameters
        # The fused CPU kernels read memory in order and ignore strides.
        self.fused = True if all(parameter.is_contiguous() for parameter in parameters) else None

    @abc.abstractmethod
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Updates every parameter in place, given a gradient for each."""

    def zeros(self) -> list[Tensor]:
        """State of zeros for each parameter."""
        return [torch.zeros_like(parameter) for parameter in self.parameters]

    def counters(self) -> list[Tensor]:
        """Step counter for each parameter."""
        return [torch.zeros((), device=p.device if self.fused else None) for p in self.parameters]


class _SGD(_Steps):
    def __init__(self, local: LocalTraining, parameters: list[Tensor]) -> None:
        super().__init__(local, parameters)
        self._buffers: list[Tensor | None] = [None] * len(parameters)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
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
    """Adam with the step ``m / (sqrt(v + eps_root) + eps)``, as in TorchOpt and Optax.

    RAIFLE's published clients use ``eps_root = 1e-8``. For gradients up to about 1e-4, the step length grows with the
    gradient instead of being constant.
    """

    def __init__(self, local: LocalTraining, parameters: list[Tensor]) -> None:
        super().__init__(local, parameters)
        self._first, self._second, self._count = self.zeros(), self.zeros(), 0

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
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
