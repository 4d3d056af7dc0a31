"""What a client has when it receives a model, and the base class of checks of it."""

import abc
import functools
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedleak.core.class_paths import named_classes
from fedleak.core.errors import require

Model = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class ReceivedModel:
    """What one client has when it receives a model, before it trains.

    Attributes:
        network: the network, whose parameters have the names of the model's tensors.
        model: the received model, ``shape`` each.
        reference: the model that the client received in the round before; in its first round, an initialisation that it
            draws itself.
        is_first: whether it is the client's first round.
        inputs: ``(N, *shape)`` own examples, as the network gets them.
        labels: ``(N,)`` int64 their classes.
        own_delta: the update that the client sent in the round before; None in the first round.
        allowed: hashes (`allow_list.model_hash`) of models that the client accepts; None if it has no such list.
        commitments: hashes of the models that other clients of this round say that they received.
    """

    network: nn.Module
    model: Model
    reference: Model
    inputs: Tensor
    labels: Tensor
    is_first: bool = False
    own_delta: Model | None = None
    allowed: frozenset[str] | None = None
    commitments: Sequence[str] = ()

    @functools.cached_property
    def active(self) -> Tensor:
        """``(N, U)`` bool, which outputs of the first ReLU are above 0 for which example, with the received model."""
        return first_active(self.network, self.model, self.inputs)

    @functools.cached_property
    def active_before(self) -> Tensor:
        """The same with the reference model."""
        return first_active(self.network, self.reference, self.inputs)

    @functools.cached_property
    def example_gradients(self) -> dict[str, Tensor]:
        """``(N, *shape)`` gradient of each example's loss at the received model."""

        def loss(model: Model, example: Tensor, label: Tensor) -> Tensor:
            outputs = functional_call(self.network, dict(model), (example[None],))
            return functional.cross_entropy(outputs, label[None])

        # One model, of which each example has a gradient of its own.
        of_examples = vmap(grad(loss), in_dims=(None, 0, 0))
        gradients: dict[str, Tensor] = of_examples(dict(self.model), self.inputs, self.labels)
        return gradients

    def mean_loss(self, model: Model) -> Tensor:
        """Mean loss of the own examples at a model, a scalar."""
        with torch.no_grad():
            return functional.cross_entropy(functional_call(self.network, dict(model), (self.inputs,)), self.labels)

    def gradient_norm(self, model: Model) -> Tensor:
        """L2 norm of the gradient of `mean_loss`, a scalar."""

        def loss(parameters: Model) -> Tensor:
            outputs = functional_call(self.network, dict(parameters), (self.inputs,))
            return functional.cross_entropy(outputs, self.labels)

        return norm(grad(loss)(dict(model)))


def first_active(network: nn.Module, model: Model, inputs: Tensor) -> Tensor:
    """``(N, U)`` bool, which outputs of a network's first ReLU are above 0; without a ReLU, of its first layer.

    Raises:
        InputError: the network has neither.
    """
    layers: list[nn.Module] = [layer for layer in network.modules() if isinstance(layer, nn.ReLU)]
    if not layers:
        layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    require(layers, "a network with a ReLU or a linear layer", type(network).__name__, "Leave out checks of units.")
    # A layer may be called several times; its first output counts.
    is_active = list[Tensor]()
    hook = layers[0].register_forward_hook(lambda _, __, output: is_active.append(output.detach() > 0))
    try:
        with torch.no_grad():
            functional_call(network, dict(model), (inputs,))
    finally:
        hook.remove()
    return is_active[0].flatten(1)


def norm(values: Model) -> Tensor:
    """L2 norm of all numbers of several tensors, a float64 scalar."""
    squares = [tensor.double().square().sum() for tensor in values.values()]
    return torch.stack(squares).sum().sqrt()


class ModelCheck(abc.ABC):
    """Base class of checks of a received model.

    Attributes:
        name: the name in results.
        reads_examples: whether the statistic depends on the client's own examples, so that clients that received the
            same models may have different values.

    Example:
        >>> import torch
        >>> from fedleak import ModelCheck
        >>> from fedleak.defenses.model_checks.base import ReceivedModel
        >>> class LargestWeight(ModelCheck):
        ...     '''The largest weight, relative to that of the model before.'''
        ...
        ...     name = "largest-weight"
        ...     reads_examples = False
        ...
        ...     def statistic(self, received):
        ...         now, before = received.model["weight"], received.reference["weight"]
        ...         return float(now.abs().max() / before.abs().max())
        >>> network = torch.nn.Linear(2, 2, bias=False)
        >>> before, sent = {"weight": torch.eye(2)}, {"weight": 8 * torch.eye(2)}
        >>> examples = {"inputs": torch.ones(1, 2), "labels": torch.tensor([0])}
        >>> LargestWeight().statistic(ReceivedModel(network=network, model=sent, reference=before, **examples))
        8.0
    """

    name: ClassVar[str]
    reads_examples: ClassVar[bool] = True

    @abc.abstractmethod
    def statistic(self, received: ReceivedModel) -> float:
        """The statistic, higher for more suspicious models; 0 where the client lacks what the check needs."""


def model_checks() -> dict[str, type[ModelCheck]]:
    """Every check of this folder, by its name."""
    return named_classes(importlib.import_module(__package__), ModelCheck)
