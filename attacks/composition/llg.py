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
        [Wainakh22], Algorithm 1 with auxiliary data.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import LLG
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = LLG()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 3)
        0.075
    """

    name = "llg"
    references = ("Wainakh22, Algorithm 1",)

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        image_pool = auxiliary(view, layer_change(view).bias.shape[1], self.auxiliary_per_class)
        counts = self.class_weights(view, image_pool, generator=generator)
        return count_estimate(counts.long())

    def class_weights(self, view: RoundView, image_pool: Auxiliary, *, generator: torch.Generator) -> Tensor:
        # Row sums of the gradient (p - y) h' of each image, averaged by class: impact and offset.
        global_model = {name: parameter[None] for name, parameter in view.model.items()}
        features, logits = class_outputs(view, image_pool, global_model)
        labels = one_hot(class_labels(image_pool), len(image_pool.by_class))
        row_sums = (logits[0].softmax(1) - labels) * features[0].sum(1, keepdim=True).double()
        impact, offset = impact_and_offset(class_means(image_pool, row_sums))

        def read(deltas: dict[str, Tensor] | None) -> Tensor:
            return layer_change(view, deltas).weight.sum(2)

        def expected(shares: Tensor) -> Tensor:
            return -(offset + impact * shares)

        # The mean gradient of a client's steps.
        rate = self.step_rate(view, image_pool, read, expected, generator=generator)
        steps = view.require(ClassifierAlgorithm).steps(view.example_counts)
        gradient = -read(None).double() / (rate * steps[:, None])
        return greedy_counts(gradient, offset, impact, view.example_counts)


@dataclass(frozen=True, kw_only=True)
class LLGAlone(CountAttack):
    """Label leakage from gradients without any data, LLG: as `LLG`, with an impact read off the gradient itself.

    The impact is the sum of the negative row sums over the number of examples, and classes have no offset.

    Threat model: passive server, one round; knows the example counts that clients report.

    References:
        [Wainakh22], Algorithm 1 with shared gradients only.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import LLGAlone
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = LLGAlone()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.45
    """

    name = "llg-alone"
    references = ("Wainakh22, Algorithm 1",)
    for_comparison = True  # gradinversion-labels is at least as good in all 70 cells
    threat_model = ThreatModel(
        sees="the update of the last layer and how many examples the client reports",
        knows="the class of each row",
        needs=("deltas",),
    )

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        gradient = -layer_change(view).weight.sum(2).double()
        classes = gradient.shape[1]
        # The factor 1 + 1 / K is the publication's.
        impact = gradient.clamp(max=0).sum(1, keepdim=True) * (1 + 1 / classes)
        no_offset = gradient.new_zeros(classes)
        counts = greedy_counts(gradient, no_offset, impact, view.example_counts)
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
        [Wainakh22], Algorithm 1 with a white-box model; the published code averages ten batches of inputs.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import LLGDummies
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = LLGDummies()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.11
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
        per_class = 1
        if self.dummies == "random":
            per_class = self.per_class  # constant inputs are all alike, so that one is enough
        count = classes * per_class
        shape = (count, *view.require(ImageClassifierAlgorithm).image_shape)
        if self.dummies == "random":
            images = torch.rand(shape, generator=generator)
        elif self.dummies == "zeros":
            images = torch.zeros(shape)
        else:
            images = torch.ones(shape)
        images = images.to(next(iter(view.model.values())).dtype)
        labels = torch.arange(count) % classes
        by_class = labels.argsort(stable=True).reshape(classes, -1)
        image_pool = Auxiliary(images, labels, by_class)
        counts = self.class_weights(view, image_pool, generator=generator)
        return count_estimate(counts.long())


def impact_and_offset(of_class: Tensor) -> tuple[Tensor, Tensor]:
    """LLG's impact, a scalar, and offsets ``(K,)``, from row sums ``(K, K)`` of batches of one class each."""
    classes = len(of_class)
    # On the diagonal, the row sum of a class whose examples the batch has; off it, those of classes without any.
    impact = of_class.diagonal().mean() * (1 + 1 / classes)
    is_same_class = torch.eye(classes, dtype=torch.float64)
    offset = (of_class * (1 - is_same_class)).sum(0) / (classes - 1)
    return impact, offset


def greedy_counts(gradient: Tensor, offset: Tensor, impact: Tensor, sizes: Tensor) -> Tensor:
    """``(V, K)`` label counts that LLG assigns one after the other, computed at once.

    The j-th further label of a class is assigned at the value ``remaining + j |impact| / N``, and the smallest values
    come first. Row sums are ``gradient (V, K)`` of the clients' mean gradients, and ``offset (K,)`` of a class without
    examples; the negative impact, a scalar or ``(V, 1)``, is added if all N examples, ``sizes (V,)``, are of the class.
    """
    unit = (-impact).clamp(min=1e-12) / sizes[:, None]
    # One label for each class with a negative row sum, of N at most.
    is_negative = gradient < 0
    first = is_negative & (is_negative.cumsum(1) <= sizes[:, None])
    # Values at which the further labels of each class are assigned: each adds the unit to what remains.
    remaining = gradient - offset + unit * first
    values = remaining[:, :, None] + unit[:, :, None] * torch.arange(int(sizes.max()))
    # The smallest values, as many as labels are left.
    order = values.flatten(1).argsort(dim=1, stable=True)
    labels_left = (sizes - first.sum(1))[:, None]
    is_assigned = torch.arange(order.shape[1])[None] < labels_left
    assigned = torch.zeros(order.shape).scatter(1, order, is_assigned.float()).reshape(values.shape)
    return first + assigned.sum(2).double()
