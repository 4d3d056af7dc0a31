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
    start: Parameters, examples: Parameters, steps: Sequence[Step], local: LocalTraining
) -> Parameters:
    """Parameters of stacked clients after one step along each gradient; derivatives reach the start and what is given.

    Args:
        start: initial parameters, ``(B, ...)`` each.
        examples: fields of the clients' examples, ``(B, N, ...)`` each.
        steps: what computes each step's gradient of the sum of the clients' mean losses, see `by_autograd`.
        local: optimizer.

    Raises:
        InputError: the optimizer is not differentiable here.
    """
    clip = local.example_clip or local.max_grad_norm
    require(
        local.optimizer != "adadelta" and not local.momentum and not local.weight_decay and not clip,
        "SGD or Adam without momentum, weight decay and clipped gradients",
        f"{local.optimizer}, momentum {local.momentum}, decay {local.weight_decay}, clip {clip}",
        _WAY_OUT,
    )
    names = list(start)
    fields = list(examples)
    trained = _Training.apply(list(steps), local, names, fields, *start.values(), *examples.values())
    return dict(zip(names, trained, strict=True))


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
    def step(parameters: Parameters, examples: Parameters) -> tuple[Parameters, SecondDerivatives]:
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        fields = {name: value.detach().requires_grad_() for name, value in examples.items()}
        gradients = torch.autograd.grad(loss(leaves, fields), list(leaves.values()), create_graph=True)

        def second_derivatives(by: Parameters, *, given_only: bool) -> tuple[Parameters, Parameters | None]:
            # <by, gradient> is differentiated again, by the fields and, unless left out, by the parameters.
            inputs = dict(fields)
            if not given_only:
                inputs |= leaves
            directions = [by[name] for name in leaves]
            derivatives = torch.autograd.grad(
                gradients, list(inputs.values()), directions, retain_graph=True, materialize_grads=True
            )
            by_input = dict(zip(inputs, derivatives, strict=True))
            by_fields = {name: by_input[name] for name in fields}
            if given_only:
                return by_fields, None
            return by_fields, {name: by_input[name] for name in leaves}

        detached = (gradient.detach() for gradient in gradients)
        return dict(zip(leaves, detached, strict=True)), second_derivatives

    return step


class _Training(torch.autograd.Function):
    """Steps on all parameters as one vector, and back through them.

    Adam's derivative by hand needs a third of the memory and time of autograd's.
    """

    @staticmethod
    def forward(
        ctx: Any, steps: list[Step], local: LocalTraining, names: list[str], fields: list[str], *values: Tensor
    ) -> tuple[Tensor, ...]:
        examples = dict(zip(fields, values[len(names) :], strict=True))
        ctx.names = names
        ctx.fields = fields
        ctx.shapes = [value.shape for value in values[: len(names)]]
        vector = _together(values[: len(names)])
        optimizer: _Adam | _Descent = _Descent(local)
        if local.optimizer == "adam":
            optimizer = _Adam(vector, local)
        ctx.optimizer = optimizer
        ctx.derivatives = []
        for step in steps:
            gradients, derivatives = step(_apart(vector, names, ctx.shapes), examples)
            vector = optimizer.step(vector, _together([gradients[name] for name in names]))
            ctx.derivatives.append(derivatives)
        return tuple(_apart(vector, names, ctx.shapes).values())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
        vector = _together(by)
        by_examples_of_all_steps = dict[str, Tensor]()
        # The first four inputs are no tensors; the initial parameters follow them.
        to_start = any(ctx.needs_input_grad[4:][: len(ctx.names)])
        for number in range(len(ctx.derivatives) - 1, -1, -1):
            # Through the optimizer's step to its gradient, then through the gradient to examples and parameters.
            directions = _apart(ctx.optimizer.back(vector, number), ctx.names, ctx.shapes)
            only_examples = number == 0 and not to_start
            by_examples, by_parameters = ctx.derivatives[number](directions, given_only=only_examples)
            by_examples_of_all_steps = {
                name: value + by_examples_of_all_steps.get(name, 0) for name, value in by_examples.items()
            }
            # A step passes parameters on as they are, besides through its gradient.
            if by_parameters is not None:
                vector = vector.add_(_together([by_parameters[name] for name in ctx.names]))
        by_start: Sequence[Tensor | None] = [None] * len(ctx.names)
        if to_start:
            by_start = list(_apart(vector, ctx.names, ctx.shapes).values())
        return None, None, None, None, *by_start, *(by_examples_of_all_steps[name] for name in ctx.fields)


class _Descent:
    def __init__(self, local: LocalTraining) -> None:
        self.rate = local.learning_rate

    def step(self, value: Tensor, gradient: Tensor) -> Tensor:
        return value - self.rate * gradient

    def back(self, by_value: Tensor, number: int) -> Tensor:
        return -self.rate * by_value


class _Adam:
    def __init__(self, like: Tensor, local: LocalTraining) -> None:
        self.local = local
        self.kept = list[tuple[Tensor, Tensor, Tensor]]()
        self.first = torch.zeros_like(like)
        self.second = torch.zeros_like(like)

    def step(self, value: Tensor, gradient: Tensor) -> Tensor:
        """The next value; keeps what `back` needs."""
        beta1, beta2 = self.local.betas
        self.first = torch.lerp(self.first, gradient, 1 - beta1)
        self.second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        rate, unbias = self._rates(len(self.kept) + 1)
        # The step is rate * m / (scale + eps), with the bias of both moments corrected.
        scale = torch.div(self.second, unbias).add_(max(self.local.eps_root, _SAFE_ROOT)).sqrt_()
        self.kept.append((gradient, self.first, scale))
        return torch.addcdiv(value, self.first, scale + self.local.eps, value=-rate)

    def back(self, by_value: Tensor, number: int) -> Tensor:
        """Gradient by a step's gradient, from that by the value after it; from the last step to the first."""
        beta1, beta2 = self.local.betas
        rate, unbias = self._rates(number + 1)
        gradient, first, scale = self.kept[number]
        if number == len(self.kept) - 1:
            self.by_first = torch.zeros_like(first)
            self.by_second = torch.zeros_like(first)
        # value' = value - rate * m / (sqrt(v / unbias + eps_root) + eps).
        denominator = scale + self.local.eps
        step = by_value / denominator
        # By m: -rate / denominator; by v: rate * m / (denominator^2 * 2 * scale * unbias).
        self.by_first.sub_(step, alpha=rate)
        self.by_second.addcdiv_(step.mul_(first).div_(denominator), scale, value=rate / (2 * unbias))
        # The gradient enters m times (1 - beta1) and v as (1 - beta2) g^2; m and v before enter times beta1 and beta2.
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
