"""The last layer of a network, found by the order and the shapes of its parameters, and its change in an update."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedleak.client.network import ClassifierAlgorithm, NetworkAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView, View


def last_outputs(view: View) -> tuple[str, int]:
    """Name of the last layer in the order of the manifest, and its number of outputs.

    Raises:
        ViewError: the last parameters are no weight ``(K, F)`` with a bias ``(K,)``.
    """
    # Without the leading dimension of the clients, and without tables of which clients send rows.
    shapes = {name: tuple(value.shape[1:]) for name, value in view.deltas.items() if name not in view.row_parameters}
    last = next((name for name, shape in reversed(shapes.items()) if len(shape) > 1), "none")
    name = last.removesuffix(".weight")
    shape = shapes.get(last, ())
    if len(shape) != 2 or shapes.get(f"{name}.bias") != shape[:1]:
        raise ViewError(
            "expected a last layer NAME.weight (K, F) with NAME.bias (K,), the last in the order of the manifest;"
            f" got {last} {' x '.join(map(str, shape))}"
        )
    return name, shape[0]


def number_of_outputs(view: View) -> int | None:
    """Number of outputs of the last layer; None where the parameters do not show it."""
    try:
        return last_outputs(view)[1]
    except ViewError:
        return None


class LayerChange(NamedTuple):
    """Change of the last linear layer (Decaf, equation 4): ``weight (V, K, F)``, row c of class c, and ``bias (V, K)``.

    The paper divides the change by the learning rate. This common factor cancels from the proportions, so it is left
    out; `published_present` applies it to the threshold.
    """

    weight: Tensor
    bias: Tensor


def output_layer(view: View) -> str:
    """Name of the layer with one row per class: the learner's last layer, or `last_layer` of an unknown classifier."""
    if isinstance(view.algorithm, ClassifierAlgorithm):
        return view.algorithm.output_layer
    return last_layer(view)


def last_layer(view: View) -> str:
    """Name of the last layer in the order of the manifest, with weight ``(K, F)``, bias ``(K,)`` and K > 1.

    Raises:
        ViewError: the last layer has another shape.
    """
    name, outputs = last_outputs(view)
    if outputs == 1:
        raise ViewError(
            f"expected an output for each class, got one output of the last layer, {name!r}: a logit of two classes or"
            " a regression, whose share of positives or mean target positive-share and target-mean infer"
        )
    return name


def one_output(view: View) -> str:
    """Name of a last layer with one output, weight ``(1, F)`` and bias ``(1,)``.

    Raises:
        ViewError: the last layer has another shape, or the clients rank items.
    """
    one_network = view.algorithm is None or isinstance(view.algorithm, NetworkAlgorithm)
    if view.row_parameters or not one_network or isinstance(view.algorithm, ClassifierAlgorithm):
        raise ViewError(
            "expected clients that train a network with one output on targets of their examples; got others"
        )
    name, outputs = last_outputs(view)
    if outputs != 1:
        raise ViewError(f"expected one output of the last layer, {name!r}: a logit or a regression; got {outputs}")
    return name


def layer_change(view: RoundView, deltas: dict[str, Tensor] | None = None) -> LayerChange:
    """The change of the last layer in the victims' deltas, or in the given ones.

    Raises:
        ViewError: the recording does not hold the last layer.
    """
    return layer_change_of(view, output_layer(view), deltas)


def layer_change_of(view: RoundView, name: str, deltas: dict[str, Tensor] | None = None) -> LayerChange:
    """The change of a linear layer, see `layer_change`."""
    source = view.deltas if deltas is None else deltas
    for parameter in (f"{name}.weight", f"{name}.bias"):
        if parameter not in source:
            raise ViewError(f"expected the deltas of the last layer, got a recording without {parameter!r}")
    return LayerChange(source[f"{name}.weight"], source[f"{name}.bias"])


def flat_change(view: RoundView, layer: str | None = None, deltas: dict[str, Tensor] | None = None) -> Tensor:
    """``(V, D)`` flattened change of one layer, e.g. ``body.0``, or of the last one, in the view's or the given deltas.

    Raises:
        ViewError: the recording does not hold the layer.
    """
    if layer is None:
        return torch.cat([part.flatten(1) for part in layer_change(view, deltas)], dim=1)
    source = view.deltas if deltas is None else deltas
    parts = []
    for name, value in source.items():
        if name.rpartition(".")[0] == layer:
            parts.append(value.flatten(1))
    if not parts:
        layers = ", ".join(sorted({name.rpartition(".")[0] for name in source}))
        raise ViewError(f"expected deltas of the layer {layer!r}, got a recording of {layers}")
    return torch.cat(parts, dim=1)
