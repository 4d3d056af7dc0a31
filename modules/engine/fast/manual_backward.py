"""The gradient of a chain of common layers written out: autograd's numbers, without its copies and bookkeeping."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from modules.engine.fast.onednn_linear import product
from modules.nets.classifiers import Classifier
from modules.nets.dropout import Dropout

Chain = list[tuple[str, nn.Module]]
Parameters = Mapping[str, Tensor]
Backward = Callable[[Tensor], Tensor]
"""From the gradient by what a layer gave to the gradient by what it got; it may write into what it is given."""
_aten = torch.ops.aten


class Sink(Protocol):
    """What takes the gradient of each parameter as soon as it is known, when nobody needs the parameter any more."""

    def take(self, name: str, gradient: Tensor) -> None:
        """Takes a gradient."""

    def take_product(self, name: str, left: Tensor, right: Tensor) -> None:
        """Takes a gradient that is the product of two matrices."""


@dataclass
class Collected:
    """Keeps the gradients, by name."""

    gradients: dict[str, Tensor] = field(default_factory=dict)

    def take(self, name: str, gradient: Tensor) -> None:
        """See `Sink`."""
        self.gradients[name] = gradient

    def take_product(self, name: str, left: Tensor, right: Tensor) -> None:
        """See `Sink`."""
        self.gradients[name] = torch.mm(left, right)


@dataclass(frozen=True)
class Descent:
    """A step of plain gradient descent: no gradient of a large layer is ever written to memory.

    Attributes:
        before: the parameters.
        after: where they are after the step; these may be the same tensors.
        learning_rate: length of the step.
        change_only: whether `after` takes what changed instead.
    """

    before: Parameters
    after: Parameters
    learning_rate: float
    change_only: bool = False

    def take(self, name: str, gradient: Tensor) -> None:
        """See `Sink`."""
        if self.change_only:
            torch.mul(gradient, -self.learning_rate, out=self.after[name])
        else:
            torch.sub(self.before[name], gradient, alpha=self.learning_rate, out=self.after[name])

    def take_product(self, name: str, left: Tensor, right: Tensor) -> None:
        """See `Sink`."""
        beta = 0 if self.change_only else 1
        torch.addmm(self.before[name], left, right, beta=beta, alpha=-self.learning_rate, out=self.after[name])


def chain_of(network: nn.Module) -> Chain | None:
    """The layers of a network that is nothing but a chain of known layers; None for any other.

    A ReLU before a max-pooling is moved behind it, where it has a quarter of the work: the maximum of what is clipped
    is the clipped maximum, and so are the gradients.
    """
    layers = [(name, layer) for name, layer in _leaves("", network) if not _does_nothing(layer)]
    if not all(_is_known(layer) for _, layer in layers):
        return None
    for place in range(len(layers) - 1):
        if isinstance(layers[place][1], nn.ReLU) and isinstance(layers[place + 1][1], nn.MaxPool2d):
            layers[place], layers[place + 1] = layers[place + 1], layers[place]
    return layers


def _leaves(prefix: str, layer: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if type(layer) not in (nn.Sequential, Classifier):
        yield prefix, layer
        return
    for name, inner in layer.named_children():
        yield from _leaves(f"{prefix}.{name}" if prefix else name, inner)


def _does_nothing(layer: nn.Module) -> bool:
    return type(layer) is nn.Identity or (type(layer) is Dropout and layer.probability == 0)


def _is_known(layer: nn.Module) -> bool:
    if type(layer) is nn.Conv2d:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if type(layer) is nn.MaxPool2d:
        return not layer.return_indices
    if type(layer) is nn.Flatten:
        return layer.start_dim == 1 and layer.end_dim == -1
    return type(layer) in (nn.ReLU, nn.Linear)


@torch.no_grad()
def chain_loss(
    chain: Chain, parameters: Parameters, inputs: Tensor, labels: Tensor, mask: Tensor, sink: Sink
) -> Tensor:
    """Mean cross-entropy of one client's examples; its gradient by every parameter goes into a sink.

    Args:
        chain: the layers, from `chain_of`.
        parameters: theirs, by name.
        inputs: ``(N, ...)``.
        labels: ``(N,)`` classes.
        mask: ``(N,)`` True for real examples.
        sink: takes the gradients, the last layer's first.
    """
    backwards: list[Backward] = []
    values = inputs
    for place, (name, layer) in enumerate(chain):
        values, backward = _FORWARD[type(layer)](_Place(layer, name, parameters, sink, values, place == 0))
        backwards.append(backward)
    share = mask.to(values.dtype) / mask.sum().clamp(min=1)
    logs = functional.log_softmax(values, dim=1)
    true = logs.gather(1, labels[:, None]).squeeze(1)
    error = logs.exp().mul_(share[:, None])
    error.scatter_add_(1, labels[:, None], -share[:, None])
    for backward in reversed(backwards):
        error = backward(error)
    return -(true * share).sum()


@dataclass(frozen=True)
class _Place:
    """A layer, what it gets, and who takes its gradients; the first layer's is not asked for the gradient by that."""

    layer: nn.Module
    name: str
    parameters: Parameters
    sink: Sink
    values: Tensor
    first: bool

    @property
    def weights(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the layer."""
        return self.parameters[f"{self.name}.weight"], self.parameters.get(f"{self.name}.bias")


def _linear(at: _Place) -> tuple[Tensor, Backward]:
    weight, bias = at.weights

    def backward(error: Tensor) -> Tensor:
        # Before the sink is given the weight's gradient, which may change the weight.
        by_values = error if at.first else product(error, weight.t())
        at.sink.take_product(f"{at.name}.weight", error.t(), at.values)
        if bias is not None:
            at.sink.take(f"{at.name}.bias", error.sum(0))
        return by_values

    return product(at.values, weight, bias), backward


def _convolution(at: _Place) -> tuple[Tensor, Backward]:
    layer = at.layer
    assert isinstance(layer, nn.Conv2d)
    weight, bias = at.weights
    assert not isinstance(layer.padding, str)
    shape = (layer.stride, layer.padding, layer.dilation)

    def backward(error: Tensor) -> Tensor:
        wanted = [not at.first, True, bias is not None]
        sizes = None if bias is None else bias.shape
        by_values, by_weight, by_bias = _aten.convolution_backward(
            error, at.values, weight, sizes, *shape, False, [0, 0], layer.groups, wanted
        )
        at.sink.take(f"{at.name}.weight", by_weight)
        if bias is not None:
            at.sink.take(f"{at.name}.bias", by_bias)
        return error if at.first else by_values

    return functional.conv2d(at.values, weight, bias, *shape, layer.groups), backward


def _relu(at: _Place) -> tuple[Tensor, Backward]:
    # What a layer before it gave is nobody else's; the examples are the client's.
    clipped = at.values.relu() if at.first else at.values.relu_()

    def backward(error: Tensor) -> Tensor:
        made: Tensor = _aten.threshold_backward.grad_input(error, clipped, 0, grad_input=error)
        return made

    return clipped, backward


def _pooling(at: _Place) -> tuple[Tensor, Backward]:
    layer = at.layer
    assert isinstance(layer, nn.MaxPool2d)
    options = [_pair(option) for option in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)]
    pooled, places = _aten.max_pool2d_with_indices(at.values, *options, layer.ceil_mode)

    def backward(error: Tensor) -> Tensor:
        if pooled.is_contiguous(memory_format=torch.channels_last):
            error = error.contiguous(memory_format=torch.channels_last)
        made: Tensor = _aten.max_pool2d_with_indices_backward(error, at.values, *options, layer.ceil_mode, places)
        return made

    return pooled, backward


def _pair(option: int | tuple[int, int]) -> list[int]:
    return [option, option] if isinstance(option, int) else list(option)


def _flatten(at: _Place) -> tuple[Tensor, Backward]:
    return at.values.flatten(1), lambda error: error.reshape(at.values.shape)


_FORWARD: dict[type[nn.Module], Callable[[_Place], tuple[Tensor, Backward]]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.ReLU: _relu,
    nn.MaxPool2d: _pooling,
    nn.Flatten: _flatten,
}
