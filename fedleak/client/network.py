"""Clients that train one network on the mean loss of their examples."""

import abc
import copy
import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedleak.client.algorithm import ExampleAlgorithm, RecordAlgorithm, Shapes
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Gradients, Parameters
from fedleak.client.engine.fast.manual_backward import Chain, ChainGradients, chain_of
from fedleak.client.engine.task import DRAWS
from fedleak.client.nets.batch_norm import mask_batches
from fedleak.client.nets.bottleneck import penalties
from fedleak.client.nets.dropout import NOISE, RandomLayer, draw_noise, random_layers
from fedleak.core.errors import require

NUMBER = "number"
"""Field of examples that are numbers of examples in a pool, see `NetworkAlgorithm.encode`."""


def is_independent(network: nn.Module) -> bool:
    """Whether a network's output for a record depends on no other record of its batch: without batch norm."""
    return not any("BatchNorm" in type(layer).__name__ for layer in network.modules())


class Network(nn.Module):
    """Network as the submodule `network`, the name that `NetworkLearner` uses.

    Args:
        network: maps inputs ``(N, ...)`` to outputs ``(N, ...)``.
    """

    is_chain = True

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.network(inputs)
        return outputs


@dataclass(frozen=True, kw_only=True)
class NetworkAlgorithm(ExampleAlgorithm, abc.ABC):
    """Clients that train one network on the mean loss of their examples; a subclass gives at least the network.

    Chains of common layers with cross-entropy have hand-written gradients.
    """

    _pool: ClassVar[tuple[Tensor, Tensor] | None] = None

    @property
    @abc.abstractmethod
    def template(self) -> nn.Module:
        """Maps inputs ``(N, ...)`` to outputs ``(N, ...)``; its parameters are only a template."""

    @property
    def criterion(self) -> Callable[..., Tensor]:
        """As in `torch.nn.functional`: ``criterion(outputs, labels, reduction="none")``.

        It has one or several values per example, which are averaged.
        """
        return functional.cross_entropy

    @property
    def names(self) -> tuple[str, str]:
        """Fields of the examples that are the network's input and the target; uint8 images are scaled to [0, 1]."""
        return ("image", "label")

    @functools.cached_property
    def random(self) -> bool:
        """Whether the network has an active random layer, e.g. dropout."""
        return any(layer.active for layer in random_layers(self.template))

    @functools.cached_property
    def _chain(self) -> Chain | None:
        if self.criterion is functional.cross_entropy:
            return chain_of(self.template)
        return None

    @functools.cached_property
    def _copies(self) -> threading.local:
        return threading.local()

    @property
    def _own_network(self) -> nn.Module:
        """Copy of the calling thread, because `functional_call` swaps the parameters of the module while it runs."""
        if not hasattr(self._copies, "network"):
            self._copies.network = copy.deepcopy(self.template)
        network: nn.Module = self._copies.network
        return network

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        return tuple(self.template.modules())

    @property
    def independent(self) -> bool:
        """Whether the network has no batch norm."""
        return is_independent(self.template)

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        return {name: tuple(value.shape) for name, value in self.template.named_parameters()}

    def trained(self, model: Mapping[str, Tensor]) -> Parameters:
        trained_names = {name for name, _ in self.template.named_parameters()}
        return {name: value for name, value in model.items() if name in trained_names}

    def encode(self, features: Tensor, labels: Tensor, examples: Tensor) -> tuple[Self, Cohort]:
        cohort = Cohort(0, torch.arange(len(examples)), {NUMBER: examples.clamp(min=0)}, examples >= 0)
        return self.on(features, labels), cohort

    def on(self, features: Tensor, labels: Tensor) -> Self:
        """The algorithm of clients whose examples are numbers (`NUMBER`) of examples in a shared pool.

        Args:
            features: ``(M, ...)`` features of the pool.
            labels: ``(M, ...)`` labels of the pool.
        """
        algorithm = copy.copy(self)
        object.__setattr__(algorithm, "_pool", (features, labels))
        return algorithm

    def fields(self, examples: Parameters, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Inputs ``(N, ...)`` and labels ``(N, ...)`` of a client's examples.

        Args:
            examples: fields of the examples.
            dtype: of inputs that are uint8 images or float32, for a model in float64.
        """
        if self._pool is None or self.names[0] in examples:
            inputs = examples[self.names[0]]
            labels = examples[self.names[1]]
        else:
            features, pool_labels = self._pool
            inputs = features[examples[NUMBER]]
            labels = pool_labels[examples[NUMBER]]
        if inputs.dtype == torch.uint8:
            return inputs.to(dtype).div(255), labels
        # Tensors of other types, e.g. token numbers, stay as they are.
        if dtype == torch.float64 and inputs.is_floating_point():
            return inputs.to(dtype), labels
        return inputs, labels

    def loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        inputs, labels = self.fields(examples, next(iter(parameters.values())).dtype)
        network = self._own_network
        # The loss is a pure function: batch norms and random layers get what they need with the batch.
        mask_batches(network, mask)
        draw_noise(network, examples.get(DRAWS), examples)
        outputs = functional_call(network, parameters, (inputs,))
        losses = self.criterion(outputs, labels, reduction="none")
        if losses.dim() > 1:
            losses = losses.flatten(1).mean(1)
        losses = losses + penalties(network)
        return (losses * mask).sum() / mask.sum().clamp(min=1)

    def record_losses(self, parameters: Parameters, inputs: Tensor, labels: Tensor) -> Tensor:
        """``(M,)`` losses of single records without dropout, of a network without batch norm.

        Args:
            parameters: one model, ``shape`` each.
            inputs: ``(M, *shape)`` records.
            labels: ``(M, ...)`` their labels.
        """
        network = self._own_network
        mask_batches(network, None)
        draw_noise(network, None)
        outputs = functional_call(network, dict(parameters), (inputs,))
        losses = self.criterion(outputs, labels, reduction="none")
        if losses.dim() > 1:
            return losses.flatten(1).mean(1)
        return losses

    def noise_shapes(self, inputs: Tensor) -> dict[str, tuple[RandomLayer, tuple[int, ...]]]:
        """Active random layers, and the shape of the random numbers of one example, by the name of their field.

        Args:
            inputs: ``(N, *shape)`` of any values.
        """
        network = copy.deepcopy(self.template)
        shapes = dict[str, tuple[RandomLayer, tuple[int, ...]]]()
        for index, layer in enumerate(random_layers(network)):
            if layer.active:
                layer.register_forward_pre_hook(
                    lambda one, given, name=f"{NOISE}{index}": shapes.update({name: (one, one.noise_shape(given[0]))})
                )
        with torch.no_grad():
            network(inputs)
        return shapes

    def fast(self) -> Gradients | None:
        if self._chain is None:
            return None
        return ChainGradients(self._chain, self.fields)


@dataclass(frozen=True, kw_only=True)
class ClassifierAlgorithm(NetworkAlgorithm, RecordAlgorithm, abc.ABC):
    """Clients that learn to classify by softmax; the network ends in one linear layer."""

    @property
    def output_layer(self) -> str:
        """Name of the last layer: its parameters are ``NAME.weight (K, F)`` and ``NAME.bias (K,)``."""
        return last_linear(self.template)[0]


@dataclass(frozen=True, kw_only=True)
class ModuleAlgorithm(NetworkAlgorithm):
    """Clients that train a given module on any loss.

    Attributes:
        module: the network.
        loss_function: the criterion.
        inputs: field of the examples that is the network's input.
        labels: field of the examples that is the loss's target.
    """

    module: nn.Module
    loss_function: Callable[..., Tensor] = functional.cross_entropy
    inputs: str = "image"
    labels: str = "label"

    @property
    def template(self) -> nn.Module:
        return self.module

    @property
    def criterion(self) -> Callable[..., Tensor]:
        return self.loss_function

    @property
    def names(self) -> tuple[str, str]:
        return self.inputs, self.labels

    def named_as(self, recorded: Shapes) -> Self:
        """Other systems' parameters have the names in the network itself, without the prefix of `Network`."""
        if not isinstance(self.module, Network) or any(name.startswith("network.") for name in recorded):
            return self
        return dataclasses.replace(self, module=self.module.network)


@dataclass(frozen=True, kw_only=True)
class ModuleClassifier(ModuleAlgorithm, ClassifierAlgorithm):
    """Clients that learn to classify with a given module."""


def last_linear(network: nn.Module, name: str = "the network") -> tuple[str, nn.Linear]:
    """Path and layer of a network's last linear layer.

    Raises:
        InputError: it has none; the message has the network's `name`.
    """
    layers = [(path, layer) for path, layer in network.named_modules() if path and isinstance(layer, nn.Linear)]
    require(layers, f"a linear layer at the end of {name}", "none", "End it in torch.nn.Linear, as a classifier does.")
    return layers[-1]
