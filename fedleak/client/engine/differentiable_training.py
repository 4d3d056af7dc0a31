"""Local training that is differentiable in the examples (RAIFLE, section IV.A)."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedleak.client.engine.fast.gradients import Parameters, SecondDerivatives
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import require

Step = Callable[[Parameters, Parameters], tuple[Parameters, SecondDerivatives]]
"""Gradients by parameter, and their derivatives, at parameters ``(B, ...)`` with what is given."""

_WAY_OUT = "Use an attack that does not differentiate through local training, e.g. direction."
_SAFE_ROOT = 1e-30
"""Smallest term in Adam's square root, whose gradient is infinite at zero."""


def train_differentiably(
    start: Parameters, given: Parameters, steps: Sequence[Step], local: LocalTraining
) -> Parameters:
    """Parameters of stacked clients after one step along each gradient; derivatives reach the start and what is given.

    Args:
        start: initial parameters, ``(B, ...)`` each.
        given: fields of the clients' examples, ``(B, N, ...)`` each.
        steps: what computes each step's gradient of the sum of the clients' mean losses, see `by_autograd`.
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
    names, fields = list(start), list(given)
    made = _Training.apply(list(steps), local, names, fields, *start.values(), *given.values())
    return dict(zip(names, made, strict=True))


def full_batches(step: Step, local: LocalTraining) -> list[Step]:
    """The steps of local training on all examples.

    Raises:
        InputError: training uses mini-batches.
    """
    require(local.batch_size is None, "full-batch SGD or Adam", f"batch size {local.batch_size}", _WAY_OUT)
    return [step] * local.epochs


def by_autograd(loss: Callable[[Parameters, Parameters], Tensor]) -> Step:
    """Step along the gradient of a loss of parameters and of what is given."""

    @torch.enable_grad()
    def step(parameters: Parameters, given: Parameters) -> tuple[Parameters, SecondDerivatives]:
        leaves, fields = (
            {name: value.detach().requires_grad_() for name, value in part.items()} for part in (parameters, given)
        )
        gradients = torch.autograd.grad(loss(leaves, fields), list(leaves.values()), create_graph=True)

        def second_derivatives(by: Parameters, *, given_only: bool) -> tuple[Parameters, Parameters | None]:
            asked = {**fields, **({} if given_only else leaves)}
            directions = [by[name] for name in leaves]
            found = torch.autograd.grad(
                gradients, list(asked.values()), directions, retain_graph=True, materialize_grads=True
            )
            by_asked = dict(zip(asked, found, strict=True))
            return {name: by_asked[name] for name in fields}, None if given_only else {n: by_asked[n] for n in leaves}

        return dict(zip(leaves, (gradient.detach() for gradient in gradients), strict=True)), second_derivatives

    return step


class _Training(torch.autograd.Function):
    """Steps on all parameters as one vector, and back through them.

    Adam's derivative by hand needs a third of the memory and time of autograd's.
    """

    @staticmethod
    def forward(
        ctx: Any, steps: list[Step], local: LocalTraining, names: list[str], fields: list[str], *values: Tensor
    ) -> tuple[Tensor, ...]:
        given = dict(zip(fields, values[len(names) :], strict=True))
        ctx.names, ctx.fields, ctx.shapes = names, fields, [value.shape for value in values[: len(names)]]
        vector = _together(values[: len(names)])
        optimizer = _Adam(vector, local) if local.optimizer == "adam" else _Descent(local)
        ctx.optimizer, ctx.derivatives = optimizer, []
        for step in steps:
            gradients, derivatives = step(_apart(vector, names, ctx.shapes), given)
            vector = optimizer.step(vector, _together([gradients[name] for name in names]))
            ctx.derivatives.append(derivatives)
        return tuple(_apart(vector, names, ctx.shapes).values())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
        vector, by_given, to_start = _together(by), dict[str, Tensor](), any(ctx.needs_input_grad[4:][: len(ctx.names)])
        for number in range(len(ctx.derivatives) - 1, -1, -1):
            directions = _apart(ctx.optimizer.back(vector, number), ctx.names, ctx.shapes)
            found, more = ctx.derivatives[number](directions, given_only=number == 0 and not to_start)
            by_given = {name: value + by_given.get(name, 0) for name, value in found.items()}
            if more is not None:
                vector = vector.add_(_together([more[name] for name in ctx.names]))
        by_start = _apart(vector, ctx.names, ctx.shapes).values() if to_start else [None] * len(ctx.names)
        return None, None, None, None, *by_start, *(by_given[name] for name in ctx.fields)


class _Descent:
    def __init__(self, local: LocalTraining) -> None:
        self.rate = local.learning_rate

    def step(self, value: Tensor, gradient: Tensor) -> Tensor:
        return value - self.rate * gradient

    def back(self, by_value: Tensor, number: int) -> Tensor:
        return -self.rate * by_value


class _Adam:
    def __init__(self, like: Tensor, local: LocalTraining) -> None:
        self.local, self.kept = local, list[tuple[Tensor, Tensor, Tensor]]()
        self.first, self.second = torch.zeros_like(like), torch.zeros_like(like)

    def step(self, value: Tensor, gradient: Tensor) -> Tensor:
        """The next value; keeps what `back` needs."""
        beta1, beta2 = self.local.betas
        self.first = torch.lerp(self.first, gradient, 1 - beta1)
        self.second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        rate, unbias = self._rates(len(self.kept) + 1)
        scale = torch.div(self.second, unbias).add_(max(self.local.eps_root, _SAFE_ROOT)).sqrt_()
        self.kept.append((gradient, self.first, scale))
        return torch.addcdiv(value, self.first, scale + self.local.eps, value=-rate)

    def back(self, by_value: Tensor, number: int) -> Tensor:
        """Gradient by a step's gradient, from that by the value after it; from the last step to the first."""
        beta1, beta2 = self.local.betas
        rate, unbias = self._rates(number + 1)
        gradient, first, scale = self.kept[number]
        if number == len(self.kept) - 1:
            self.by_first, self.by_second = torch.zeros_like(first), torch.zeros_like(first)
        whole = scale + self.local.eps
        step = by_value / whole
        self.by_first.sub_(step, alpha=rate)
        self.by_second.addcdiv_(step.mul_(first).div_(whole), scale, value=rate / (2 * unbias))
        by_gradient = torch.mul(self.by_first, 1 - beta1).addcmul_(gradient, self.by_second, value=2 * (1 - beta2))
        self.by_first.mul_(beta1)
        self.by_second.mul_(beta2)
        return by_gradient

    def _rates(self, step: int) -> tuple[float, float]:
        beta1, beta2 = self.local.betas
        return self.local.learning_rate / (1 - beta1**step), 1 - beta2**step


def _together(values: Sequence[Tensor]) -> Tensor:
    return torch.cat([value.flatten() for value in values])


def _apart(vector: Tensor, names: Sequence[str], shapes: Sequence[torch.Size]) -> Parameters:
    parts = torch.split(vector, [shape.numel() for shape in shapes])
    return {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
