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
        return chain_of(self.template) if self.criterion is functional.cross_entropy else None

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

    def network_shapes(self, held: Shapes) -> dict[str, tuple[int, ...]]:
        return {name: tuple(value.shape) for name, value in self.template.named_parameters()}

    def trained(self, model: Mapping[str, Tensor]) -> Parameters:
        own = {name for name, _ in self.template.named_parameters()}
        return {name: value for name, value in model.items() if name in own}

    def encode(self, features: Tensor, labels: Tensor, examples: Tensor) -> tuple[Self, Cohort]:
        cohort = Cohort(0, torch.arange(len(examples)), {NUMBER: examples.clamp(min=0)}, examples >= 0)
        return self.on(features, labels), cohort

    def on(self, features: Tensor, labels: Tensor) -> Self:
        """The algorithm of clients whose examples are numbers (`NUMBER`) of examples in a shared pool.

        Args:
            features: ``(M, ...)`` features of the pool.
            labels: ``(M, ...)`` labels of the pool.
        """
        made = copy.copy(self)
        object.__setattr__(made, "_pool", (features, labels))
        return made

    def fields(self, examples: Parameters, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Inputs ``(N, ...)`` and labels ``(N, ...)`` of a client's examples.

        Args:
            examples: fields of the examples.
            dtype: of inputs that are uint8 images or float32, for a model in float64.
        """
        if self._pool is None or self.names[0] in examples:
            inputs, labels = (examples[name] for name in self.names)
        else:
            inputs, labels = (values[examples[NUMBER]] for values in self._pool)
        if inputs.dtype == torch.uint8:
            return inputs.to(dtype).div(255), labels
        return inputs.to(dtype) if dtype == torch.float64 and inputs.is_floating_point() else inputs, labels

    def loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        inputs, labels = self.fields(examples, next(iter(parameters.values())).dtype)
        network = self._own_network
        mask_batches(network, mask)
        draw_noise(network, examples.get(DRAWS), examples)
        losses = self.criterion(functional_call(network, parameters, (inputs,)), labels, reduction="none")
        each = (losses.flatten(1).mean(1) if losses.dim() > 1 else losses) + penalties(network)
        return (each * mask).sum() / mask.sum().clamp(min=1)

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
        losses = self.criterion(functional_call(network, dict(parameters), (inputs,)), labels, reduction="none")
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses

    def noise_shapes(self, inputs: Tensor) -> dict[str, tuple[RandomLayer, tuple[int, ...]]]:
        """Active random layers, and the shape of the random numbers of one example, by the name of their field.

        Args:
            inputs: ``(N, *shape)`` of any values.
        """
        network, shapes = copy.deepcopy(self.template), dict[str, tuple[RandomLayer, tuple[int, ...]]]()
        for place, layer in enumerate(random_layers(network)):
            if layer.active:
                layer.register_forward_pre_hook(
                    lambda one, given, name=f"{NOISE}{place}": shapes.update({name: (one, one.noise_shape(given[0]))})
                )
        with torch.no_grad():
            network(inputs)
        return shapes

    def fast(self) -> Gradients | None:
        return None if self._chain is None else ChainGradients(self._chain, self.fields)


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

    def named_as(self, held: Shapes) -> Self:
        """Other systems' parameters have the names in the network itself, without the prefix of `Network`."""
        if not isinstance(self.module, Network) or any(name.startswith("network.") for name in held):
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


@dataclass(frozen=True)
class OneOutput:
    """How a loss depends on a network's one output z and the target y: its derivative is ``response(z) - slope * y``.

    So it is for losses of generalised linear models: binary cross-entropy on a logit, where the response is the sigmoid
    and the slope one, and the squared error, where it is 2 z and the slope two.

    Attributes:
        criterion: see `NetworkAlgorithm.criterion`.
        slope: minus the second derivative by output and target.
        binary: whether the response lies between 0 and the slope, as a probability of a positive target does.
    """

    criterion: Callable[..., Tensor]
    slope: float
    binary: bool

    @classmethod
    def of(cls, algorithm: NetworkAlgorithm) -> "OneOutput | None":
        """The dependence of an algorithm's loss; None if its network has several outputs, or the loss is another."""
        layers = [layer for layer in algorithm.template.modules() if isinstance(layer, nn.Linear)]
        if not layers or layers[-1].out_features != 1 or isinstance(algorithm, ClassifierAlgorithm):
            return None
        outputs, criterion = torch.linspace(-3, 3, 13, dtype=torch.float64), algorithm.criterion
        try:
            zero, half, one = (_slopes(criterion, outputs, torch.full_like(outputs, y)) for y in (0, 0.5, 1))
            far = _slopes(criterion, outputs.new_tensor([-40.0, 40.0]), outputs.new_zeros(2))
        except (RuntimeError, ValueError, TypeError, IndexError):
            return None
        slope = float((zero - one).mean())
        straight = (zero - one - slope).abs().max() < 1e-6 and (zero - half - slope / 2).abs().max() < 1e-6
        if slope <= 0 or not bool(straight):
            return None
        between = (far - far.new_tensor([0.0, slope])).abs().max() < 1e-6
        return cls(criterion, slope, bool(between))

    def response(self, outputs: Tensor) -> Tensor:
        """Derivative of the loss at a target of zero, of any shape of outputs."""
        flat = outputs.detach().double().flatten()
        return _slopes(self.criterion, flat, torch.zeros_like(flat)).reshape(outputs.shape)


def _slopes(criterion: Callable[..., Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
    """``(N,)`` derivatives of a loss by outputs ``(N,)``, which it takes as ``(N,)`` or ``(N, 1)``."""
    error: Exception | None = None
    for shapes in (((-1,), (-1,)), ((-1, 1), (-1,)), ((-1, 1), (-1, 1))):
        with torch.enable_grad():
            points = outputs.detach().clone().requires_grad_()
            try:
                losses = criterion(points.reshape(shapes[0]), targets.reshape(shapes[1]), reduction="none")
            except (RuntimeError, ValueError, TypeError, IndexError) as raised:
                error = raised
                continue
            if losses.numel() == len(points):  # others compare each output with each target
                (found,) = torch.autograd.grad(losses.sum(), points)
                return found
    raise ValueError("no loss of one output") from error
