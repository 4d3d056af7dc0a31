"""Interface of hand-written gradients, which equal those of autograd to float tolerance."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedleak.client.engine.fast.memory import BufferPool

Parameters = dict[str, Tensor]


class SecondDerivatives(Protocol):
    """Derivatives of gradients."""

    def __call__(self, by: Parameters, *, given_only: bool) -> tuple[Parameters, Parameters | None]:
        """Gradients of ``sum_p <by[p], gradient of p>`` by the fields of the examples, and by the parameters.

        Args:
            by: a tensor of each parameter's shape.
            given_only: leave out those by the parameters.
        """


@dataclass(frozen=True)
class Descent:
    """Step of plain SGD that does not store the gradient of a large layer.

    Attributes:
        before: parameters before the step.
        after: output tensors for the parameters after the step; may be the same tensors.
        learning_rate: step size.
        change_only: whether `after` receives the change instead.
    """

    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]
    learning_rate: float
    change_only: bool = False

    def take(self, name: str, gradient: Tensor) -> None:
        """Applies the gradient of a parameter."""
        if self.change_only:
            torch.mul(gradient, -self.learning_rate, out=self.after[name])
        else:
            torch.sub(self.before[name], gradient, alpha=self.learning_rate, out=self.after[name])

    def take_product(self, name: str, left: Tensor, right: Tensor) -> None:
        """Applies the gradient ``left @ right`` of a parameter."""
        # after = before - learning_rate * left @ right, in one product; beta = 0 leaves `before` out.
        beta = 0 if self.change_only else 1
        torch.addmm(self.before[name], left, right, beta=beta, alpha=-self.learning_rate, out=self.after[name])


class Gradients:
    """Hand-written gradients of a task; a method returns None for cases that need autograd.

    Attributes:
        descends: whether `descend` is implemented.
    """

    descends: bool = False

    def stacked(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters] | None:
        """`Task.stacked_loss` ``(C,)`` and its gradients by parameter, valid until the next step reuses `buffers`."""
        return None

    def differentiable(
        self, parameters: Parameters, examples: Parameters, mask: Tensor
    ) -> tuple[Parameters, SecondDerivatives] | None:
        """Gradients by parameter of the sum of `Task.stacked_loss`, and their derivatives."""
        return None

    def single(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> tuple[Tensor, Parameters] | None:
        """`Task.loss` and its gradients by parameter."""
        return None

    def descend(self, step: Descent, examples: Parameters, mask: Tensor) -> Tensor:
        """`Task.loss`, after writing one step of plain SGD to `step`; called only where `descends` is set."""
        raise NotImplementedError(f"{type(self).__name__} must write the step, as its descends says")
