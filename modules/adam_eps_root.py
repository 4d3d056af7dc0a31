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
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "eps_root": eps_root})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            for param in params:
                if param not in self.state:
                    self.state[param] = {"step": 0, "first": torch.zeros_like(param), "second": torch.zeros_like(param)}
                self._step_one(param, group)

    def _step_one(self, param: Tensor, group: dict[str, Any]) -> None:
        state, grad = self.state[param], param.grad
        assert grad is not None
        beta1, beta2 = group["betas"]
        state["step"] += 1
        state["first"].lerp_(grad, 1 - beta1)
        state["second"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = state["second"].div(1 - beta2 ** state["step"]).add_(group["eps_root"]).sqrt_().add_(group["eps"])
        param.addcdiv_(state["first"], root, value=-group["lr"] / (1 - beta1 ** state["step"]))
