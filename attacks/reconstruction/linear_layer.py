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
from fedleak.client.network import ClassifierAlgorithm, NetworkAlgorithm, last_linear
from fedleak.client.one_output import OneOutput
from fedleak.client.text import TextAlgorithm
from fedleak.core.declared_noise import noise_is_refuted
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Scores
from fedleak.core.metric_table import ANY, Metric
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
    name, shape, behind = _first_linear(view)
    if behind and not embedded:
        raise ViewError(f"expected a first layer that gets the records; {name} is behind an embedding of categories")
    weight, bias = view.deltas[f"{name}.weight"], view.deltas[f"{name}.bias"].double()
    if bool(weight.any()) and not bool((bias.abs().amax(1) > _LEAST_BIAS * weight.abs().flatten(1).amax(1)).any()):
        raise ViewError(f"expected a change of {name}.bias, found none; batch norm after the layer undoes any bias")
    if has_classes(view.algorithm) and view.algorithm.local.weight_decay:
        own = {part: view.model[f"{name}.{part}"].double() for part in ("weight", "bias")}
        decayed = view.algorithm.decay_change(own, view.example_counts)
        weight, bias = weight.double() - decayed["weight"], bias - decayed["bias"]
    noised = f"{name}.weight", f"{name}.bias"
    return LayerUpdate(
        name=name,
        weight=weight,
        bias=bias,
        shape=shape,
        precision=torch.finfo(view.deltas[f"{name}.weight"].dtype).eps,
        # Noise that is declared, but not there, hides nothing.
        noise=0.0 if noise_is_refuted(view, noised) else view.noise_scale(f"{name}.weight"),
        embedded=behind,
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
    return products.square() >= (1 - _PARALLEL) * squares[1:] * squares[:-1]


def neighbour_differences(rows: Tensor, weight: Tensor, precision: float) -> Tensor:
    """``(M, D + 1)`` differences of the rows of neighbouring neurons that measure the same statistic, and differ.

    Args:
        rows: ``(N, D + 1)`` changes of weight and bias, see `LayerUpdate.rows`.
        weight: ``(N, D)`` weight of the layer that was sent, see `equal_neighbours`.
        precision: relative precision of the changes, below 1,000 times which a difference is none.
    """
    differences = rows[:-1] - rows[1:]
    size = 1e3 * precision * float(rows[:, -1].abs().max())
    return differences[equal_neighbours(weight) & (differences[:, -1].abs() > size)]


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


def _first_linear(view: RoundView) -> tuple[str, tuple[int, ...], bool]:
    """Name of the first layer, shape of the records, and whether an embedding of their categories is before it."""
    matrices = [name for name, value in view.model.items() if value.dim() > 1]
    tables = [name for name in matrices if ".tables." in f".{name}"]
    first = next((name for name in matrices if name not in tables), "")
    name, embedded = first.removesuffix(".weight"), bool(tables) and matrices[0] in tables
    if view.model[first].dim() != 2 if first else True:
        raise ViewError(f"expected a linear first layer, which gets the records themselves; found {first or 'none'}")
    if f"{name}.bias" not in view.deltas or first not in view.deltas:
        raise ViewError(f"expected the updates of {name}.weight and {name}.bias; found no bias, or it is not recorded")
    images, width = view.auxiliary.get("images"), view.model[first].shape[1]
    shapes = [getattr(view.algorithm, "image_shape", None), None if images is None else tuple(images.shape[1:])]
    known = next((shape for shape in shapes if shape is not None), (width,))
    if math.prod(known) != width and not embedded:
        raise ViewError(
            f"expected a first layer that gets all {math.prod(known)} numbers of a record; {name} gets {width}"
        )
    return name, tuple(known), embedded


def has_classes(algorithm: object) -> TypeGuard[NetworkAlgorithm]:
    """Whether clients learn classes, by softmax or by one logit."""
    if not isinstance(algorithm, NetworkAlgorithm) or isinstance(algorithm, ClassifierAlgorithm):
        return isinstance(algorithm, ClassifierAlgorithm)
    head = OneOutput.of(algorithm)
    return head is not None and head.binary


def layer_errors(algorithm: NetworkAlgorithm, model: Mapping[str, Tensor], inputs: Tensor, layer: str) -> Tensor:
    """``(M, K, N)`` gradient of each example's loss by the outputs of a linear layer, for each class.

    The examples ``(M, *shape)``, in the precision of the model, do not influence each other, as batch norms make them.
    The classes of one logit are negative and positive, see `has_classes`.
    """
    network, outputs = copy.deepcopy(algorithm.template), list[Tensor]()
    own, head = algorithm.trained(model), OneOutput.of(algorithm)
    classes = 2 if head is not None else len(own[f"{last_linear(network)[0]}.bias"])
    labels = torch.arange(classes).repeat(len(inputs))

    def keep(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
        outputs.append(output.detach().repeat_interleave(classes, 0).requires_grad_())
        return outputs[0]

    network.get_submodule(layer).register_forward_hook(keep)
    made = functional_call(network, own, (inputs,))
    if head is None:
        loss = algorithm.criterion(made, labels, reduction="sum")
    else:
        loss = (made.flatten() * (head.response(made).flatten() - head.slope * labels)).sum()
    (found,) = torch.autograd.grad(loss, outputs)
    return found.reshape(len(inputs), classes, found.shape[1])


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
    shaped = [own.float().reshape(len(own), *layer.shape) for own in records]
    said = [torch.full((len(own),), certain) for own in records] if isinstance(certain, bool) else certain
    sure = [own.bool() & (not layer.noise) for own in said]
    made = reconstruction(shaped, labels=labels, certified=sure)
    nothing = torch.full((len(records),), torch.nan, dtype=torch.float64)
    return LinearEstimate(**vars(made), predicted=nothing if predicted is None else predicted)
