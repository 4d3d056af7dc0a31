"""Adam with a constant under the root, as the differentiable optimizers of TorchOpt and Optax have it."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class AdamEpsRoot(torch.optim.Optimizer):
    """Adam whose step is ``m / (sqrt(v + eps_root) + eps)``.

    RAIFLE's published clients train with ``eps_root = 1e-8``. It is no detail: at gradients near 1e-4 and below it
    turns Adam's step of constant length into one that grows with the gradient.

    Args:
        params: leaf tensors.
        lr: learning rate.
        betas: decay rates of the two moments.
        eps: added to the root.
        eps_root: added under the root.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        eps_root: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "eps_root": eps_root, "step": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            for param in params:
                if param not in self.state:
                    self.state[param] = {"first": torch.zeros_like(param), "second": torch.zeros_like(param)}
            group["step"] += 1
            self._step(params, group)

    def _step(self, params: list[Tensor], group: dict[str, Any]) -> None:
        grads = [p.grad for p in params if p.grad is not None]
        first, second = ([self.state[p][moment] for p in params] for moment in ("first", "second"))
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(first, grads, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, grads, grads, 1 - beta2)
        roots = torch._foreach_div(second, 1 - beta2 ** group["step"])
        torch._foreach_add_(roots, group["eps_root"])
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_addcdiv_(params, first, roots, -group["lr"] / (1 - beta1 ** group["step"]))
