"""Training objective of clients: the loss of one client, and optionally of stacked clients."""

import abc

import torch
from torch import Tensor, nn

from fedleak.client.engine.fast.gradients import Gradients, Parameters
from fedleak.defenses.base import LocalStep

POSITION = "position"
"""Field that the engine adds to a mini-batch: position of each example in the client's list; absent in full batches."""
DRAWS = "draws"
"""Field of a random loss: one int64 number per example and step, its only source of randomness."""


class Task(abc.ABC):
    """Local training objective.

    Only `loss` is required; `torch.vmap` derives `stacked_loss` from it by default.
    """

    @property
    def random(self) -> bool:
        """Whether the loss is random, as with dropout; it then receives `DRAWS` and must use no other randomness."""
        return False

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        """Layers of the network, if the loss is the mean over the examples of a network's losses; empty otherwise."""
        return ()

    @abc.abstractmethod
    def loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Mean loss of one client.

        Args:
            parameters: public and private, ``shape`` each; of an item table only the client's rows.
            examples: ``(N, ...)`` each.
            mask: ``(N,)`` True for real examples, False for padding.

        Returns:
            A scalar.
        """

    def stacked_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Mean losses of stacked clients: ``(C, *shape)``, ``(C, N, ...)``, ``(C, N)`` -> ``(C,)``."""
        losses: Tensor = torch.vmap(self.loss, randomness="different")(parameters, examples, mask)
        return losses

    def local_step(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> LocalStep | None:
        """A step of `loss` for defences that change it; None if they do not know such clients."""
        return None

    def fields_of(self, step: LocalStep) -> Parameters:
        """The fields of the examples that a changed step has in place of those of `local_step`."""
        raise NotImplementedError(f"{type(self).__name__} must give the fields of its steps")

    def fast(self) -> Gradients | None:
        """Hand-written gradients, used unless ``local.fast`` is False; None for autograd."""
        return None


class StackedTask(Task):
    """Task written for stacked clients, which then train vectorized on a CPU too."""

    @abc.abstractmethod
    def stacked_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor: ...

    def loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        stacked = {name: value[None] for name, value in parameters.items()}
        return self.stacked_loss(stacked, {name: value[None] for name, value in examples.items()}, mask[None])[0]
