"""LLG: label leakage from gradients."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from attacks.composition.base import Auxiliary, layer_change
from attacks.composition.label_inference import LabelInference, class_labels, class_means, class_outputs
from protocol.simulators import ClassifierSimulator
from protocol.view import ServerView


@dataclass(frozen=True, kw_only=True)
class LLG(LabelInference):
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

    def shares(self, view: ServerView, known: Auxiliary, *, generator: torch.Generator) -> Tensor:
        features, logits = class_outputs(view, known, {name: value[None] for name, value in view.model.items()})
        labels = one_hot(class_labels(known), len(known.by_class))
        rows = (logits[0].softmax(1) - labels) * features[0].sum(1, keepdim=True).double()
        of_class = class_means(known, rows)
        classes = len(of_class)
        own = torch.eye(classes, dtype=torch.float64)
        impact = of_class.diagonal().mean() * (1 + 1 / classes)
        offset = (of_class * (1 - own)).sum(0) / (classes - 1)

        def read(deltas: dict[str, Tensor] | None) -> Tensor:
            return layer_change(view, deltas).weight.sum(2)

        rate = self.step_rate(view, known, read, lambda shares: -(offset + impact * shares), generator=generator)
        steps = view.require(ClassifierSimulator).steps(view.example_counts)
        gradient = -read(None).double() / (rate * steps[:, None])
        return greedy_counts(gradient, offset, impact, view.example_counts)


def greedy_counts(gradient: Tensor, offset: Tensor, impact: Tensor, sizes: Tensor) -> Tensor:
    """``(V, K)`` label counts that LLG assigns one after the other, computed at once.

    The j-th further label of a class is assigned at the value ``remaining + j |impact| / N``, and the smallest values
    come first.

    Args:
        gradient: ``(V, K)`` row sums of the clients' mean gradients.
        offset: ``(K,)`` row sum of a class without examples.
        impact: change of a row sum if all N examples are of the class; a scalar, negative.
        sizes: ``(V,)`` number N of examples.
    """
    unit = (-impact).clamp(min=1e-12) / sizes[:, None]
    first = (gradient < 0) & ((gradient < 0).cumsum(1) <= sizes[:, None])
    remaining = gradient - offset + unit * first
    values = remaining[:, :, None] + unit[:, :, None] * torch.arange(int(sizes.max()))
    order = values.flatten(1).argsort(dim=1, stable=True)
    rank = torch.arange(order.shape[1])[None] < (sizes - first.sum(1))[:, None]
    taken = torch.zeros(order.shape).scatter(1, order, rank.float()).reshape(values.shape)
    return first + taken.sum(2).double()
