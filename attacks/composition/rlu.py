"""RLU: recovering labels from local updates."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedleak.attacks.composition.base import trained_models
from fedleak.attacks.composition.label_inference import LabelInference, SoftLabels, class_means, class_outputs
from fedleak.client.auxiliary_images import Auxiliary
from fedleak.client.last_layer import layer_change
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.ranges import PositiveInt
from fedleak.core.view import RoundView

_TOLERANCE = 0.1
"""Difference of mean logits below which the search stops, as in the published code."""


@dataclass(frozen=True, kw_only=True)
class RLU(SoftLabels):
    """Recovering labels from local updates: `SoftLabels` with the mean softmax outputs along the client's training.

    The server simulates how the logits of its images shift in the client's steps: a step with shares q changes the bias
    as in `SoftLabels`, and logits by the bias's change times the squared norm of the mean feature, which is the ratio
    of the changes of weight and bias. A search corrects the shares from which it simulates: the class whose simulated
    logits exceed those of the client's final model most loses one label per step, the one that falls short most gains
    as many. The linear system is solved with the average over the steps.

    The publication draws logits from normal distributions fitted to those of the auxiliary images; here the images'
    own logits are the draws.

    Threat model: passive server, one round, with the update of all layers; knows the learning rate and the example
    counts that clients report, and has a few images of each class.

    Args:
        searches: number of corrections.

    References:
        Chen and Vikalo, "Recovering Labels from Local Updates in Federated Learning", ICML 2024, arXiv:2405.00955,
        Algorithms 1 and 2.
    """

    name = "rlu"
    references = ("RLU, Algorithms 1 and 2",)
    threat_model = dataclasses.replace(
        LabelInference.threat_model, sees="the update, the global model and how many examples the client reports"
    )

    searches: PositiveInt = 5

    def class_weights(self, view: RoundView, known: Auxiliary, *, generator: torch.Generator) -> Tensor:
        change = layer_change(view)
        _, start = class_outputs(view, known, {name: value[None] for name, value in view.model.items()})
        _, end = class_outputs(view, known, trained_models(view, view.deltas))
        soft = class_means(known, start.softmax(2))
        rate = self.bias_rate(view, known, soft[0], generator=generator)
        bias = change.bias.double()
        bias = bias.where(bias.abs() > 1e-12, 1e-12)
        feature = (change.weight.double() / bias[..., None]).mean(1)
        shift = rate * feature.square().sum(1, keepdim=True)
        wanted = (end - start).mean(1)
        steps = view.require(ClassifierAlgorithm).steps(view.example_counts)[:, None]
        unit = steps / view.example_counts[:, None]
        shares = self.solve(view, (soft + class_means(known, end.softmax(2))) / 2, rate)
        shares = shares / shares.sum(1, keepdim=True)
        for _ in range(self.searches):
            moved, _ = _trajectory(known, start, shares, shift, steps)
            excess = moved - wanted
            wrong = excess.abs().amax(1, keepdim=True) >= _TOLERANCE
            loses = excess.masked_fill(shares < unit, -torch.inf)
            minus = one_hot(loses.argmax(1), shares.shape[1]) * (loses.amax(1, keepdim=True) >= 0)
            plus = one_hot(excess.argmin(1), shares.shape[1]) * (excess.amin(1, keepdim=True) < 0)
            both = wrong & minus.any(1, keepdim=True) & plus.any(1, keepdim=True)
            shares = shares + unit * (plus - minus) * both
        _, along = _trajectory(known, start, shares, shift, steps)
        return self.solve(view, along, rate)


def _trajectory(known: Auxiliary, start: Tensor, shares: Tensor, shift: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
    """Simulated shift of the logits ``(V, K)`` by all steps, and mean softmax ``(V, K, K)`` by class over the steps.

    Images have logits ``start (1, M, K)`` before training; a step with a mean negative gradient of one moves a logit by
    ``shift (V, K)``; clients with ``shares (V, K)`` make ``steps (V, 1)``.
    """
    moved, total = torch.zeros_like(shares), start.new_zeros(len(shares), shares.shape[1], shares.shape[1])
    for step in range(int(steps.max())):
        soft = class_means(known, (start + moved[:, None]).softmax(2))
        going = step < steps
        total += soft * going[..., None]
        moved = moved + going * shift * (shares - (shares[:, None] @ soft).squeeze(1))
    return moved, total / steps[..., None]
