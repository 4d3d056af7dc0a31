"""The first linear layer of a client's update, as ratios of the records that went into it."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedleak.attacks.reconstruction.estimates import ReconstructionEstimate, reconstruction
from fedleak.client.frozen_backbone import FrozenBackboneAlgorithm
from fedleak.client.network import ClassifierAlgorithm, NetworkAlgorithm, last_linear
from fedleak.client.one_output import OneOutput
from fedleak.client.text import TextAlgorithm
from fedleak.core.declared_noise import noise_is_refuted
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Scores
from fedleak.core.metric import ANY, Metric
from fedleak.core.view import RoundView, View

ELASTIC = "adam", "adadelta"
"""Optimizers that scale each number of an update by itself, after which no ratio is a record."""
_OFF_GRID = 0.05
"""Distance from the grid of 8-bit pixels, in levels, above which a number is no pixel."""
_PARALLEL = 1e-6
"""Largest difference of a squared cosine from 1 of two proportional rows of a model."""
_LEAST_BIAS = 1e-5
"""Change of the bias, as a share of the weight's, below which it is rounding."""


@dataclass(frozen=True, kw_only=True)
class LayerUpdate:
    """Change of a linear layer that gets the records themselves, of V clients.

    Under any training by plain gradients, ``weight[v, j] = sum_i c_ij x_i`` and ``bias[v, j] = sum_i c_ij`` for the
    client's records x_i: each step adds ``-lr * gradient`` to both, with the same factor for each record and neuron.

    Attributes:
        name: name of the layer.
        weight: ``(V, N, D)`` change of the weight, as recorded, or in float64 without that by weight decay.
        bias: ``(V, N)`` float64 change of the bias, likewise.
        shape: shape of a record, of D numbers.
        precision: relative precision of the recorded numbers.
        noise: standard deviation of the clients' noise on each number; 0 for none, also where the update is too short
            to hold the declared one.
        embedded: whether the layer gets embeddings of the records' categories (`layer_inputs`) in place of records.
    """

    name: str
    weight: Tensor
    bias: Tensor
    shape: tuple[int, ...]
    precision: float
    noise: float
    embedded: bool = False

    def rows_of(self, victim: int) -> Tensor:
        """``(N, D + 1)`` float64 weight and bias of a client: sums of records with a 1 appended."""
        return torch.cat([self.weight[victim].double(), self.bias[victim][:, None]], dim=1)

    @property
    def rows(self) -> Iterator[Tensor]:
        """`rows_of` each client, one in memory at a time."""
        return map(self.rows_of, range(len(self.weight)))

    def live(self, floor: float) -> Tensor:
        """``(V, N)`` neurons whose change of the bias is above a share `floor` of the client's largest."""
        size = self.bias.abs()
        return size > floor * size.amax(1, keepdim=True)


def layer_update(view: RoundView, *, embedded: bool = False) -> LayerUpdate:
    """The change of the first linear layer; `embedded` says whether it may be behind an embedding of categories.

    Raises:
        ViewError: the layer was not recorded, has no bias, is followed by batch norm or gets features or words instead
            of records; or the clients' optimizer scales each number of the update by itself.
    """
    if isinstance(view.algorithm, TextAlgorithm):
        raise ViewError("expected records that are numbers; found clients that train on words")
    local = getattr(view.algorithm, "local", None)
    if local is not None and local.optimizer in ELASTIC:
        raise ViewError(
            f"expected plain SGD, where weight and bias change in the same proportion; the clients train with"
            f" {local.optimizer}, which scales each number by itself"
        )
    name, shape, is_embedded = _first_linear(view)
    if is_embedded and not embedded:
        raise ViewError(f"expected a first layer that gets the records; {name} is behind an embedding of categories")
    weight = view.deltas[f"{name}.weight"]
    bias = view.deltas[f"{name}.bias"].double()
    bias_moved = bias.abs().amax(1) > _LEAST_BIAS * weight.abs().flatten(1).amax(1)
    if bool(weight.any()) and not bool(bias_moved.any()):
        raise ViewError(f"expected a change of {name}.bias, found none; batch norm after the layer undoes any bias")
    # Weight decay adds multiples of the model, which are known, to sums of records.
    if has_classes(view.algorithm) and view.algorithm.local.weight_decay:
        sent = {part: view.model[f"{name}.{part}"].double() for part in ("weight", "bias")}
        decayed = view.algorithm.decay_change(sent, view.example_counts)
        weight = weight.double() - decayed["weight"]
        bias = bias - decayed["bias"]
    # Noise that is declared, but not there, hides nothing.
    noise = 0.0
    if not noise_is_refuted(view, (f"{name}.weight", f"{name}.bias")):
        noise = view.noise_scale(f"{name}.weight")
    return LayerUpdate(
        name=name,
        weight=weight,
        bias=bias,
        shape=shape,
        precision=torch.finfo(view.deltas[f"{name}.weight"].dtype).eps,
        noise=noise,
        embedded=is_embedded,
    )


def equal_neighbours(weight: Tensor) -> Tensor:
    """``(N - 1,)`` whether a neuron measures the same statistic as the next one.

    Args:
        weight: ``(N, D)`` weight of the layer that was sent. Neurons measure the same if their rows are proportional; a
            row of zeros, as that of another client's neuron in a sum, is so to all.
    """
    sent = weight.double()
    squares = sent.square().sum(1)
    products = (sent[1:] * sent[:-1]).sum(1)
    # Cauchy-Schwarz with equality: (a.b)^2 = |a|^2 |b|^2.
    return products.square() >= (1 - _PARALLEL) * squares[1:] * squares[:-1]


def neighbour_differences(rows: Tensor, weight: Tensor, precision: float) -> Tensor:
    """``(M, D + 1)`` differences of the rows of neighbouring neurons that measure the same statistic, and differ.

    Args:
        rows: ``(N, D + 1)`` changes of weight and bias, see `LayerUpdate.rows`.
        weight: ``(N, D)`` weight of the layer that was sent, see `equal_neighbours`.
        precision: relative precision of the changes, below 1,000 times which a difference is none.
    """
    differences = rows[:-1] - rows[1:]
    smallest = 1e3 * precision * float(rows[:, -1].abs().max())
    return differences[equal_neighbours(weight) & (differences[:, -1].abs() > smallest)]


def are_pixels(view: RoundView) -> bool | None:
    """Whether the server's own images are on the grid of 8-bit pixels in [0, 1], as records are then; None if unknown.

    Attacks that know a record by this grid find none on another scale.
    """
    images = view.auxiliary.get("images")
    if images is None:
        return None
    levels = images.double() * (1 if images.dtype == torch.uint8 else 255)
    on_grid = (levels - levels.round()).abs() < _OFF_GRID
    return bool((on_grid & (levels > -_OFF_GRID) & (levels < 255 + _OFF_GRID)).all())


def check_no_head(view: RoundView) -> None:
    """Refuses a head on a frozen network, whose first layer gets features instead of records.

    Raises:
        ViewError: the clients train one.
    """
    if isinstance(view.algorithm, FrozenBackboneAlgorithm):
        raise ViewError(
            "expected a network that gets the records themselves; got a head on a frozen network, of which"
            " head-features infers what it gets, and head-images what the records are"
        )


def _first_linear(view: RoundView) -> tuple[str, tuple[int, ...], bool]:
    """Name of the first layer, shape of the records, and whether an embedding of their categories is before it."""
    check_no_head(view)
    matrices = [name for name, value in view.model.items() if value.dim() > 1]
    # Tables of embeddings come first in a network that has them; the layer is the first other matrix.
    tables = [name for name in matrices if ".tables." in f".{name}"]
    no_tables = [name for name in matrices if name not in tables]
    first = no_tables[0] if no_tables else ""
    name = first.removesuffix(".weight")
    is_embedded = bool(tables) and matrices[0] in tables
    if not first or view.model[first].dim() != 2:
        raise ViewError(f"expected a linear first layer, which gets the records themselves; found {first or 'none'}")
    if f"{name}.bias" not in view.deltas or first not in view.deltas:
        raise ViewError(f"expected the updates of {name}.weight and {name}.bias; found no bias, or it is not recorded")
    # The network's description says the shape of a record, or the server's own images do; else it is a row of numbers.
    width = view.model[first].shape[1]
    shape = getattr(view.algorithm, "image_shape", None)
    if shape is None and view.auxiliary.get("images") is not None:
        shape = tuple(view.auxiliary["images"].shape[1:])
    if shape is None:
        shape = (width,)
    if math.prod(shape) != width and not is_embedded:
        raise ViewError(
            f"expected a first layer that gets all {math.prod(shape)} numbers of a record; {name} gets {width}"
        )
    return name, tuple(shape), is_embedded


def has_classes(algorithm: object) -> TypeGuard[NetworkAlgorithm]:
    """Whether clients learn classes, by softmax or by one logit."""
    if not isinstance(algorithm, NetworkAlgorithm):
        return False
    if isinstance(algorithm, ClassifierAlgorithm):
        return True
    head = OneOutput.of(algorithm)
    return head is not None and head.binary


def layer_errors(algorithm: NetworkAlgorithm, model: Mapping[str, Tensor], inputs: Tensor, layer: str) -> Tensor:
    """``(M, K, N)`` gradient of each example's loss by the outputs of a linear layer, for each class.

    The examples ``(M, *shape)``, in the precision of the model, do not influence each other, as batch norms make them.
    The classes of one logit are negative and positive, see `has_classes`.
    """
    network = copy.deepcopy(algorithm.template)
    parameters = algorithm.trained(model)
    head = OneOutput.of(algorithm)
    classes = 2
    if head is None:
        classes = len(parameters[f"{last_linear(network)[0]}.bias"])
    labels = torch.arange(classes).repeat(len(inputs))
    layer_outputs = list[Tensor]()

    def repeat_for_classes(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Continues from each example's output once for each class, as a leaf whose gradient is wanted."""
        layer_outputs.append(output.detach().repeat_interleave(classes, 0).requires_grad_())
        return layer_outputs[0]

    network.get_submodule(layer).register_forward_hook(repeat_for_classes)
    outputs = functional_call(network, parameters, (inputs,))
    if head is None:
        loss = algorithm.criterion(outputs, labels, reduction="sum")
    else:
        # A logit l times the derivative of its loss, which is held constant, has the gradient of the loss.
        loss = (outputs.flatten() * (head.response(outputs).flatten() - head.slope * labels)).sum()
    (errors,) = torch.autograd.grad(loss, layer_outputs)
    return errors.reshape(len(inputs), classes, errors.shape[1])


@dataclass(frozen=True, kw_only=True)
class LinearEstimate(ReconstructionEstimate):
    """Records with the predicted error of each client's.

    Attributes:
        predicted: ``(V,)`` PSNR in dB that follows from the update and the declared noise, NaN if nothing is predicted.
    """

    metrics = (
        *ReconstructionEstimate.metrics,
        Metric(
            "predicted-psnr",
            "Predicted PSNR is that of the mean squared error which follows from the declared noise.",
            leak=False,
            predicts="psnr",
            span=ANY,
        ),
    )
    predicted: Tensor

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        scores = super().score(view, truth)
        if bool(self.predicted.isnan().all()):
            return scores
        return replace(scores, metrics={**scores.metrics, "predicted-psnr": self.predicted})


def linear_estimate(
    layer: LayerUpdate,
    records: Sequence[Tensor],
    labels: Sequence[Tensor] | None,
    *,
    certain: bool | Sequence[Tensor] = False,
    predicted: Tensor | None = None,
) -> LinearEstimate:
    """Estimate of records ``(M_v, D)`` of each client, with classes ``(M_v,)`` if they are known.

    `certain` is whether records are certified: all of them, or ``(M_v,)`` for each client; under noise none is.
    """
    shaped = [client_records.float().reshape(len(client_records), *layer.shape) for client_records in records]
    if isinstance(certain, bool):
        certain = [torch.full((len(client_records),), certain) for client_records in records]
    certified = [is_certain.bool() & (not layer.noise) for is_certain in certain]
    estimate = reconstruction(shaped, labels=labels, certified=certified)
    if predicted is None:
        predicted = torch.full((len(records),), torch.nan, dtype=torch.float64)
    return LinearEstimate(**vars(estimate), predicted=predicted)
