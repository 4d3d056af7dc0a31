"""Hand-written gradients of a chain of common layers, without autograd's copies and overhead."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedleak.client.engine.fast.gradients import Descent, Gradients
from fedleak.client.nets.dropout import Dropout

Chain = list[tuple[str, nn.Module]]
Parameters = Mapping[str, Tensor]
Backward = Callable[[Tensor], Tensor]
"""Maps the gradient by a layer's output, which it may overwrite, to the gradient by its input."""
_aten = torch.ops.aten


@dataclass
class Collected:
    """Sink that stores gradients by name."""

    gradients: dict[str, Tensor] = field(default_factory=dict)

    def take(self, name: str, gradient: Tensor) -> None:
        self.gradients[name] = gradient

    def take_product(self, name: str, left: Tensor, right: Tensor) -> None:
        self.gradients[name] = torch.mm(left, right)


Sink = Collected | Descent
"""Receiver of each parameter's gradient as soon as it is computed and the parameter is no longer needed."""


def chain_of(network: nn.Module) -> Chain | None:
    """Layers of a network that is a chain of supported layers; None for any other network.

    A ReLU before a max-pooling is moved behind it, which has the same values and gradients and a quarter of the work.
    """
    layers = [(name, layer) for name, layer in _leaves("", network) if not _does_nothing(layer)]
    if not all(_is_known(layer) for _, layer in layers):
        return None
    for index in range(len(layers) - 1):
        if isinstance(layers[index][1], nn.ReLU) and isinstance(layers[index + 1][1], nn.MaxPool2d):
            layers[index : index + 2] = [layers[index + 1], layers[index]]
    return layers


def _leaves(prefix: str, layer: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if type(layer) is not nn.Sequential and not vars(type(layer)).get("is_chain"):
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


class ChainGradients(Gradients):
    """Gradients of the mean cross-entropy of a chain of common layers.

    Args:
        chain: layers from `chain_of`.
        fields: returns inputs ``(N, ...)``, in a precision, and classes ``(N,)`` of a client's examples.
    """

    descends = True

    def __init__(self, chain: Chain, fields: Callable[[dict[str, Tensor], torch.dtype], tuple[Tensor, Tensor]]) -> None:
        self.chain = chain
        self.fields = fields

    def single(
        self, parameters: dict[str, Tensor], examples: dict[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        sink = Collected()
        return self._loss(parameters, examples, mask, sink), sink.gradients

    def descend(self, step: Descent, examples: dict[str, Tensor], mask: Tensor) -> Tensor:
        return self._loss(step.before, examples, mask, step)

    def _loss(self, parameters: Parameters, examples: dict[str, Tensor], mask: Tensor, sink: Sink) -> Tensor:
        dtype = next(iter(parameters.values())).dtype
        return chain_loss(self.chain, parameters, *self.fields(examples, dtype), mask, sink)


@torch.no_grad()
def chain_loss(
    chain: Chain, parameters: Parameters, inputs: Tensor, labels: Tensor, mask: Tensor, sink: Sink
) -> Tensor:
    """Mean cross-entropy of one client's examples, with its gradients sent to a sink.

    Args:
        chain: layers from `chain_of`.
        parameters: parameters by name.
        inputs: ``(N, ...)``.
        labels: ``(N,)`` classes.
        mask: ``(N,)`` True for real examples.
        sink: receiver of the gradients, which start with the last layer.
    """
    backwards: list[Backward] = []
    values = with_marked_layout(inputs)
    for depth, (name, layer) in enumerate(chain):
        at = _Place(layer, name, parameters, sink, values, first=depth == 0)
        values, backward = _FORWARD[type(layer)](at)
        backwards.append(backward)
    share = mask.to(values.dtype) / mask.sum().clamp(min=1)
    log_probabilities = functional.log_softmax(values, dim=1)
    true_log_probabilities = log_probabilities.gather(1, labels[:, None]).squeeze(1)
    # The derivative of the mean cross-entropy by the logits: (p - onehot(label)) / n.
    error = log_probabilities.exp().mul_(share[:, None])
    error.scatter_add_(1, labels[:, None], -share[:, None])
    for backward in reversed(backwards):
        error = backward(error)
    return -(true_log_probabilities * share).sum()


@dataclass(frozen=True)
class _Place:
    """Layer with its input and sink; the first layer needs no gradient by its input."""

    layer: nn.Module
    name: str
    parameters: Parameters
    sink: Sink
    values: Tensor
    first: bool

    @property
    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self.parameters[f"{self.name}.weight"], self.parameters.get(f"{self.name}.bias")


def _linear(at: _Place) -> tuple[Tensor, Backward]:
    weight, bias = at.weights

    def backward(error: Tensor) -> Tensor:
        # Computed before the sink receives the gradient, because a sink may change the weight.
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
    geometry = (layer.stride, layer.padding, layer.dilation)

    def backward(error: Tensor) -> Tensor:
        # Gradients by inputs, weight and bias; the examples themselves need none.
        needed = [not at.first, True, bias is not None]
        bias_shape = None if bias is None else bias.shape
        by_values, by_weight, by_bias = _aten.convolution_backward(
            error, at.values, weight, bias_shape, *geometry, False, [0, 0], layer.groups, needed
        )
        at.sink.take(f"{at.name}.weight", by_weight)
        if bias is not None:
            at.sink.take(f"{at.name}.bias", by_bias)
        return error if at.first else by_values

    return functional.conv2d(at.values, weight, bias, *geometry, layer.groups), backward


def _relu(at: _Place) -> tuple[Tensor, Backward]:
    # Outputs of an earlier layer may be overwritten, the client's examples may not.
    clipped = at.values.relu() if at.first else at.values.relu_()

    def backward(error: Tensor) -> Tensor:
        error = _in_layout_of(error, clipped)
        by_values: Tensor = _aten.threshold_backward.grad_input(error, clipped, 0, grad_input=error)
        return by_values

    return clipped, backward


def _pooling(at: _Place) -> tuple[Tensor, Backward]:
    layer = at.layer
    assert isinstance(layer, nn.MaxPool2d)
    layer_options = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    options = [[option, option] if isinstance(option, int) else list(option) for option in layer_options]
    pooled, winners = _aten.max_pool2d_with_indices(at.values, *options, layer.ceil_mode)

    def backward(error: Tensor) -> Tensor:
        error = _in_layout_of(error, pooled)
        by_values: Tensor = _aten.max_pool2d_with_indices_backward(error, at.values, *options, layer.ceil_mode, winners)
        return by_values

    return pooled, backward


def _flatten(at: _Place) -> tuple[Tensor, Backward]:
    return at.values.flatten(1), lambda error: error.reshape(at.values.shape)


def with_marked_layout(images: Tensor) -> Tensor:
    """View of images ``(N, 1, h, w)`` with the strides of channels-last; any other tensor is returned as it is.

    Images of one channel have the same memory in both layouts, and torch takes them for channels-first: all layers up
    to the next convolution then run in the slower layout, and their values are copied back and forth.
    """
    if images.dim() != 4 or images.shape[1] != 1 or not images.is_contiguous(memory_format=torch.channels_last):
        return images
    height, width = images.shape[2:]
    return images.as_strided(images.shape, (height * width, 1, width, 1))


def _in_layout_of(error: Tensor, values: Tensor) -> Tensor:
    """The error in the memory layout of the values, because elementwise operations on two layouts are slow."""
    channels_last = values.dim() == 4 and values.is_contiguous(memory_format=torch.channels_last)
    if channels_last:
        return error.contiguous(memory_format=torch.channels_last)
    return error


_FORWARD: dict[type[nn.Module], Callable[[_Place], tuple[Tensor, Backward]]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.ReLU: _relu,
    nn.MaxPool2d: _pooling,
    nn.Flatten: _flatten,
}


def product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``inputs @ weight.T + bias`` without autograd, for arbitrary strides.

    torch multiplies float32 matrices with MKL, whose fastest code runs only on one vendor's processors; oneDNN is up to
    three times as fast on others.

    Args:
        inputs: ``(N, in)``.
        weight: ``(out, in)``.
        bias: ``(out,)`` or None.
    """
    if inputs.device.type == "cpu" and inputs.dtype == torch.float32 and torch._C._has_mkldnn:
        # oneDNN is a thousand times slower on weights with gaps, such as slices.
        dense = weight if weight.is_contiguous() or weight.t().is_contiguous() else weight.contiguous()
        outputs: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, dense, bias, "none", [], "")
        return outputs
    return functional.linear(inputs, weight, bias)
