"""LLG: label leakage from gradients."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedleak.attacks.composition.counts import CountAttack, CountEstimate, count_estimate
from fedleak.attacks.composition.label_inference import LabelInference, class_labels, class_means, class_outputs
from fedleak.client.auxiliary_images import Auxiliary, auxiliary
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.last_layer import layer_change, output_layer
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


@dataclass(frozen=True, kw_only=True)
class LLG(LabelInference, CountAttack):
    """Label leakage from gradients with auxiliary data, LLG+: counts from the row sums of the last layer's gradient.

    A row sum is a class's offset plus its count times an impact that is the same for all classes; both are measured on
    batches of one class each. Classes with a negative row sum get one label, then each further label goes to the class
    with the smallest remaining row sum, from which the impact is subtracted. The steps of several mini-batches are
    taken for one batch of all examples, as the paper does. It needs non-negative features.

    Threat model: passive server, one round; knows the learning rate and the example counts that clients report, and has
    a few images of each class.

    References:
        Wainakh, Ventola, Müßig, Keim, Garcia Cordero, Zimmer, Grube, Kersting and Mühlhäuser, "User-Level Label Leakage
        from Gradients in Federated Learning", PoPETs 2022, arXiv:2105.09369, Algorithm 1 with auxiliary data.
    """

    name = "llg"
    references = ("LLG, Algorithm 1",)

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        known = auxiliary(view, layer_change(view).bias.shape[1], self.auxiliary_per_class)
        return count_estimate(self.class_weights(view, known, generator=generator).long())

    def class_weights(self, view: RoundView, known: Auxiliary, *, generator: torch.Generator) -> Tensor:
        features, logits = class_outputs(view, known, {name: value[None] for name, value in view.model.items()})
        labels = one_hot(class_labels(known), len(known.by_class))
        rows = (logits[0].softmax(1) - labels) * features[0].sum(1, keepdim=True).double()
        impact, offset = impact_and_offset(class_means(known, rows))

        def read(deltas: dict[str, Tensor] | None) -> Tensor:
            return layer_change(view, deltas).weight.sum(2)

        rate = self.step_rate(view, known, read, lambda shares: -(offset + impact * shares), generator=generator)
        steps = view.require(ClassifierAlgorithm).steps(view.example_counts)
        gradient = -read(None).double() / (rate * steps[:, None])
        return greedy_counts(gradient, offset, impact, view.example_counts)


@dataclass(frozen=True, kw_only=True)
class LLGAlone(CountAttack):
    """Label leakage from gradients without any data, LLG: as `LLG`, with an impact read off the gradient itself.

    The impact is the sum of the negative row sums over the number of examples, and classes have no offset.

    Threat model: passive server, one round; knows the example counts that clients report.

    References:
        Wainakh et al., "User-Level Label Leakage from Gradients in Federated Learning", PoPETs 2022, arXiv:2105.09369,
        Algorithm 1 with shared gradients only.
    """

    name = "llg-alone"
    references = ("LLG, Algorithm 1",)
    for_comparison = True  # gradinversion-labels is at least as good in all 70 cells
    threat_model = ThreatModel(
        sees="the update of the last layer and how many examples the client reports",
        knows="the class of each row",
        needs=("deltas",),
    )

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        gradient = -layer_change(view).weight.sum(2).double()
        classes = gradient.shape[1]
        impact = gradient.clamp(max=0).sum(1, keepdim=True) * (1 + 1 / classes)
        counts = greedy_counts(gradient, gradient.new_zeros(classes), impact, view.example_counts)
        return count_estimate(counts.long())


@dataclass(frozen=True, kw_only=True)
class LLGDummies(LLG):
    """Label leakage from gradients with dummy inputs, LLG*: as `LLG`, with inputs that are no images.

    Threat model: passive server, one round; knows the learning rate, the shape of the images and the example counts
    that clients report.

    Args:
        dummies: the inputs: all ``zeros``, all ``ones``, or ``random`` uniform pixels.
        per_class: number of random inputs per class.
        auxiliary_per_class: not used.

    References:
        Wainakh et al., "User-Level Label Leakage from Gradients in Federated Learning", PoPETs 2022, arXiv:2105.09369,
        Algorithm 1 with a white-box model; the published code averages ten batches of inputs.
    """

    name = "llg-dummies"
    threat_model = ThreatModel(
        sees="the update of the last layer, the global model and how many examples the client reports",
        knows="the clients' learning rate (or their training algorithm) and the shape of an image",
        needs=(ImageClassifierAlgorithm, "deltas"),
    )

    dummies: Literal["zeros", "ones", "random"] = "random"
    per_class: PositiveInt = 100

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        classes = view.deltas[f"{output_layer(view)}.bias"].shape[1]
        count = classes * (self.per_class if self.dummies == "random" else 1)
        shape = count, *view.require(ImageClassifierAlgorithm).image_shape
        drawn = {"zeros": torch.zeros, "ones": torch.ones}.get(self.dummies)
        images = torch.rand(shape, generator=generator) if drawn is None else drawn(shape)
        images = images.to(next(iter(view.model.values())).dtype)
        labels = torch.arange(count) % classes
        by_class = labels.argsort(stable=True).reshape(classes, -1)
        return count_estimate(self.class_weights(view, Auxiliary(images, labels, by_class), generator=generator).long())


def impact_and_offset(of_class: Tensor) -> tuple[Tensor, Tensor]:
    """LLG's impact, a scalar, and offsets ``(K,)``, from row sums ``(K, K)`` of batches of one class each."""
    classes = len(of_class)
    own = torch.eye(classes, dtype=torch.float64)
    impact = of_class.diagonal().mean() * (1 + 1 / classes)
    return impact, (of_class * (1 - own)).sum(0) / (classes - 1)


def greedy_counts(gradient: Tensor, offset: Tensor, impact: Tensor, sizes: Tensor) -> Tensor:
    """``(V, K)`` label counts that LLG assigns one after the other, computed at once.

    The j-th further label of a class is assigned at the value ``remaining + j |impact| / N``, and the smallest values
    come first. Row sums are ``gradient (V, K)`` of the clients' mean gradients, and ``offset (K,)`` of a class without
    examples; the negative impact, a scalar or ``(V, 1)``, is added if all N examples, ``sizes (V,)``, are of the class.
    """
    unit = (-impact).clamp(min=1e-12) / sizes[:, None]
    first = (gradient < 0) & ((gradient < 0).cumsum(1) <= sizes[:, None])
    remaining = gradient - offset + unit * first
    values = remaining[:, :, None] + unit[:, :, None] * torch.arange(int(sizes.max()))
    order = values.flatten(1).argsort(dim=1, stable=True)
    rank = torch.arange(order.shape[1])[None] < (sizes - first.sum(1))[:, None]
    taken = torch.zeros(order.shape).scatter(1, order, rank.float()).reshape(values.shape)
    return first + taken.sum(2).double()
