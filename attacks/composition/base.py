"""The base class of composition attacks: one round or several, the last layer's change and the auxiliary images."""

import abc
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.attacks.composition.last_outputs import last_outputs
from fedleak.client.nets.batch_norm import mask_batches
from fedleak.client.network import ClassifierAlgorithm, NetworkAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.declared_noise import without_refuted_noise
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate
from fedleak.core.view import RoundView, View

IMAGES, LABELS = "images", "labels"
AUXILIARY = (f"auxiliary:{IMAGES}", f"auxiliary:{LABELS}")
Rounds = Literal["last", "all"]


@dataclass(frozen=True, kw_only=True)
class CompositionAttack(Attack):
    """Base class of attacks that estimate the class shares from each round separately.

    They do not expect noise that clients declare and that their updates are too short to hold.

    Args:
        rounds: ``last`` uses the round of the view; ``all`` combines it with the view's earlier rounds.
    """

    family = "composition"
    estimates: ClassVar[type[Estimate]] = CompositionEstimate

    rounds: Rounds = "last"

    def run(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        if self.rounds == "last":
            return self.estimate(without_refuted_noise(view), generator=generator)
        views = [without_refuted_noise(one) for one in (*view.earlier, view)]
        for one in views:
            if not torch.equal(one.pseudonyms, view.pseudonyms):
                raise ViewError(f"round {one.round}: expected the same victims in the same order, got others")
        return self.combine([self.estimate(one, generator=generator) for one in views])

    @abc.abstractmethod
    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        """The estimate from one round."""

    def combine(self, estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
        """Mean over the rounds (Decaf, section IV-B); a class is present if it is present in any round."""
        mean = torch.stack([e.proportions for e in estimates]).mean(0)
        return certain(mean, torch.stack([e.present for e in estimates]).any(0))


def certain(proportions: Tensor, present: Tensor) -> CompositionEstimate:
    """An estimate without intervals; the proportions are normalised."""
    total = proportions.sum(1, keepdim=True)
    nothing = torch.full_like(proportions, torch.nan)
    return CompositionEstimate(proportions=proportions / total, low=nothing, high=nothing, present=present)


def by_information(estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
    """Mean over rounds, weighted for each class by the inverse variance that the interval implies.

    The errors of the rounds are assumed to be independent. A round in which a class is null has no weight for this
    class if another round has it present.
    """
    centre = torch.stack([e.proportions for e in estimates])
    half = torch.stack([(e.high - e.low) / 2 for e in estimates]).clamp(min=1e-6)
    found = torch.stack([e.present for e in estimates])
    present = found.any(0)
    information = half**-2 * found
    total = information.sum(0).where(present, 1)
    mean = (centre * information).sum(0) / total
    mean = mean / mean.sum(1, keepdim=True)
    width = total**-0.5 * present
    return CompositionEstimate(
        proportions=mean, low=(mean - width).clamp(0, 1), high=(mean + width).clamp(0, 1), present=present
    )


class LayerChange(NamedTuple):
    """Change of the last linear layer (Decaf, equation 4): ``weight (V, K, F)``, row c of class c, and ``bias (V, K)``.

    The paper divides the change by the learning rate. This common factor cancels from the proportions, so it is left
    out; `published_present` applies it to the threshold.
    """

    weight: Tensor
    bias: Tensor


def output_layer(view: View) -> str:
    """Name of the layer with one row per class: the learner's last layer, or `last_layer` of an unknown classifier."""
    return view.algorithm.output_layer if isinstance(view.algorithm, ClassifierAlgorithm) else last_layer(view)


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
    known = view.algorithm is None or isinstance(view.algorithm, NetworkAlgorithm)
    if view.row_parameters or not known or isinstance(view.algorithm, ClassifierAlgorithm):
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
    parts = [value.flatten(1) for name, value in source.items() if name.rpartition(".")[0] == layer]
    if not parts:
        held = ", ".join(sorted({name.rpartition(".")[0] for name in source}))
        raise ViewError(f"expected deltas of the layer {layer!r}, got a recording of {held}")
    return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class Auxiliary:
    """The adversary's ``images (M, channels, height, width)`` with ``labels (M,)``.

    ``by_class (K, k)`` are the indices of each class's images, padded with -1.
    """

    images: Tensor
    labels: Tensor
    by_class: Tensor

    @property
    def per_class(self) -> Tensor:
        """``(K,)`` number of images of each class."""
        return (self.by_class >= 0).sum(1)


def auxiliary(view: RoundView, classes: int, most: int | None = None) -> Auxiliary:
    """The auxiliary images of a view, at most the first `most` of each class.

    Raises:
        ViewError: a class has no image, or a label is not below `classes`.
    """
    images, labels = view.auxiliary[IMAGES], view.auxiliary[LABELS]
    if len(images) != len(labels) or (len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes):
        raise ViewError(f"expected auxiliary images with a label below {classes} each, got others")
    numbers = [(labels == c).nonzero().flatten()[:most] for c in range(classes)]
    missing = [c for c, own in enumerate(numbers) if not len(own)]
    if missing:
        raise ViewError(f"expected auxiliary images of every class, got none of class {missing[0]}")
    return Auxiliary(images, labels, pad_sequence(numbers, batch_first=True, padding_value=-1))


def trained_models(view: RoundView, deltas: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``(B, *shape)`` models after local training that changes the global model by these deltas."""
    count = len(next(iter(deltas.values())))
    return {n: v + deltas[n] if n in deltas else v.expand(count, *v.shape) for n, v in view.model.items()}


@torch.no_grad()
def network_outputs(
    algorithm: ClassifierAlgorithm, models: Mapping[str, Tensor], images: Tensor
) -> tuple[Tensor, Tensor]:
    """Inputs of the last layer ``(B, M, F)`` and logits ``(B, M, K)`` of models ``(B, *shape)`` for M images.

    Batch norms use the statistics of these images.
    """
    network, features, logits = copy.deepcopy(algorithm.template), list[Tensor](), []
    mask_batches(network, None)
    network.get_submodule(algorithm.output_layer).register_forward_pre_hook(lambda _, given: features.append(given[0]))
    for position in range(len(next(iter(models.values())))):
        own = {name: value[position] for name, value in algorithm.trained(models).items()}
        logits.append(functional_call(network, own, (images,)))
    return torch.stack(features), torch.stack(logits)
