"""Optimizers of local training; all are elementwise, so stacked clients train like single clients."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adadelta import adadelta
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedleak.client.engine.local_hyperparameters import LocalTraining


def build_optimizer(
    local: LocalTraining, parameters: Sequence[Tensor]
) -> "KernelOptimizer | _TorchOptimizer | _AdamEpsRoot":
    """Optimizer of one client or of stacked clients; `step` updates the leaf tensors, given a gradient for each."""
    if local.eps_root:
        return _AdamEpsRoot(local, parameters)
    if local.fast:
        if local.fast:
            return KernelOptimizer(local, parameters)
        return _TorchOptimizer(local, parameters)
    return _TorchOptimizer(local, parameters)


class _TorchOptimizer:
    """Adapter of `torch.optim`."""

    def __init__(self, local: LocalTraining, parameters: Sequence[Tensor]) -> None:
        kinds: dict[str, tuple[Any, dict[str, Any]]] = {
            "sgd": (torch.optim.SGD, {"momentum": local.momentum}),
            "adam": (torch.optim.Adam, {"betas": local.betas, "eps": local.eps}),
            "adadelta": (torch.optim.Adadelta, {"rho": local.rho, "eps": local.eps}),
        }
        kind, options = kinds[local.optimizer]
        self.parameters = parameters
        self.optimizer = kind(parameters, lr=local.learning_rate, weight_decay=local.weight_decay, **options)

    def step(self, gradients: Sequence[Tensor]) -> None:
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()


class KernelOptimizer:
    """Optimizer on torch's functional kernels.

    The classes of `torch.optim` look for a GPU in every step, which takes longer than the step once Lightning is
    imported.
    """

    def __init__(self, local: LocalTraining, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        # The fused CPU kernels read memory in order and ignore strides.
        fused = True if all(parameter.is_contiguous() for parameter in parameters) else None
        options: dict[str, Any] = {"lr": local.learning_rate, "weight_decay": local.weight_decay, "maximize": False}
        kernels: dict[str, Callable[..., None]] = {"sgd": sgd, "adam": adam, "adadelta": adadelta}
        if local.optimizer == "sgd":
            # State in the order of the kernels' arguments. SGD: a momentum buffer, which the first step makes.
            self.state: list[list[Any]] = [[None] * len(parameters)]
            options |= {"fused": fused, "momentum": local.momentum, "dampening": 0.0, "nesterov": False}
        else:
            # Adam and Adadelta: two running means for each parameter, and its number of steps.
            self.state = [[torch.zeros_like(parameter) for parameter in parameters] for _ in range(2)]
            counters = [torch.zeros((), device=parameter.device if fused else None) for parameter in parameters]
            if local.optimizer == "adam":
                # The empty list stands for the largest second moments, which only AMSGrad has.
                self.state += [[], counters]
                beta1, beta2 = local.betas
                options |= {"fused": fused, "amsgrad": False, "beta1": beta1, "beta2": beta2, "eps": local.eps}
            else:
                self.state += [counters]
                options |= {"rho": local.rho, "eps": local.eps}
        self.kernel = kernels[local.optimizer]
        self.options = options

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        self.kernel(self.parameters, list(gradients), *self.state, **self.options)


class _AdamEpsRoot:
    """Adam with the step ``m / (sqrt(v + eps_root) + eps)``, as in TorchOpt and Optax; `torch.optim` lacks it.

    RAIFLE's published clients use ``eps_root = 1e-8``. For gradients up to about 1e-4, the step length grows with the
    gradient instead of being constant.
    """

    def __init__(self, local: LocalTraining, parameters: Sequence[Tensor]) -> None:
        self.local = local
        self.parameters = list(parameters)
        self.count = 0
        self.first, self.second = ([torch.zeros_like(value) for value in parameters] for _ in range(2))

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        local, gradients, (beta1, beta2) = self.local, list(gradients), self.local.betas
        self.count += 1
        # First moment m <- beta1 m + (1 - beta1) g; second moment v <- beta2 v + (1 - beta2) g^2.
        torch._foreach_lerp_(self.first, gradients, 1 - beta1)
        torch._foreach_mul_(self.second, beta2)
        torch._foreach_addcmul_(self.second, gradients, gradients, 1 - beta2)
        # sqrt(v / (1 - beta2^t) + eps_root) + eps.
        roots = torch._foreach_div(self.second, 1 - beta2**self.count)
        torch._foreach_add_(roots, local.eps_root)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, local.eps)
        # The bias of m is corrected in the step size.
        torch._foreach_addcdiv_(self.parameters, self.first, roots, -local.learning_rate / (1 - beta1**self.count))
