"""Closed form of a composition: the last layer's change as the classes' mean gradients, known up to their shares."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedleak.attacks.composition.base import CompositionAttack, certain, network_outputs, trained_models
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.attacks.composition.least_squares import shares_on_simplex
from fedleak.client.auxiliary_images import AUXILIARY, Auxiliary, auxiliary
from fedleak.client.last_layer import layer_change
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.ranges import PositiveInt, UnitInterval
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_PRIOR = 0.1
"""Standard deviation of a share about equal shares, before the update is seen; only used where clients add noise."""


@dataclass(frozen=True, kw_only=True)
class ClosedForm(CompositionAttack):
    """Least squares on the mean gradients of the classes in the last layer, at both known ends of local training.

    The gradient of cross-entropy by the last layer is ``(p - y) h`` with the probabilities p, the label y and the
    features h; the constant feature of the bias is 1. Its mean over the auxiliary images of class c, at the global and
    at the client's model, is ``g_c``. SGD changes the layer by about ``-rate sum_c q_c g_c``, where the rate is the
    known sum of the step sizes, so the shares q follow without simulation. Because the feature of the bias is 1 for any
    activation, no class can hide. The error grows with the curvature of the path between the two ends.

    The change due to weight decay is subtracted. Updates that clients clip have an unknown scale, and only their
    direction counts. Where clients add noise, only the global model's gradients are used, and shares have a normal
    prior about equal shares. SGD with momentum is allowed; Adam and Adadelta are refused, because they scale the steps
    of each parameter by unknown factors.

    Threat model: passive server, one round; knows the clients' training algorithm and their example counts, and has a
    few images of each class.

    Args:
        weights: whether the layer's weights are used with the bias.
        least: smallest share of a class that is called present, if the noise of the clients does not hide it.
        auxiliary_per_class: number of auxiliary images used per class, None for all.

    References:
        This project. The identity of the bias is that of Wainakh et al., "User-Level Label Leakage from Gradients in
        Federated Learning", PETS 2022, arXiv:2105.09369, and of Ramakrishna and Dan, "Inferring Class-Label
        Distribution in Federated Learning", AISec 2022.
    """

    name = "closed-form"
    threat_model = ThreatModel(
        sees="the update, the global model and how many examples the client reports",
        knows="the clients' training algorithm and labelled images of every class that no client has",
        needs=(ClassifierAlgorithm, "deltas", *AUXILIARY),
    )

    weights: bool = True
    least: UnitInterval = 0.01
    auxiliary_per_class: PositiveInt | None = None

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        known = auxiliary(view, layer_change(view).bias.shape[1], self.auxiliary_per_class)
        shares, deviation = self.shares(view, known, view.deltas, view.example_counts)
        present = (shares > deviation.clamp(min=self.least)) | (shares == shares.amax(1, keepdim=True))
        return certain(shares * present, present)

    def shares(
        self, view: RoundView, known: Auxiliary, deltas: Mapping[str, Tensor], counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Shares ``(B, K)`` of clients with these deltas ``(B, *shape)`` and example counts ``(B,)``.

        The second result is their standard deviation due to noise that the clients add.
        """
        response, change = self._linear(view, known, deltas, counts)
        bias = f"{view.require(ClassifierAlgorithm).output_layer}.bias"
        precision = response @ response.transpose(1, 2)
        target = (response @ change[..., None]).squeeze(2)
        noise, classes = view.noise_scale(bias), precision.shape[1]
        if noise:
            prior = torch.eye(classes).double() / _PRIOR**2
            precision, target = precision / noise**2 + prior, target / noise**2 + prior.sum(1) / classes
        shares = shares_on_simplex(precision, target, scaled=view.clip(bias) is not None)
        return shares, torch.linalg.pinv(precision).diagonal(dim1=1, dim2=2).clamp(min=0).sqrt() * bool(noise)

    def _linear(
        self, view: RoundView, known: Auxiliary, deltas: Mapping[str, Tensor], counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Response ``(B, K, D)`` of the last layer to the shares, and its change ``(B, D)``."""
        learner = view.require(ClassifierAlgorithm)
        rates = learner.step_sums(counts)
        if rates is None:
            raise ViewError("expected clients with SGD, got an optimizer that scales parameters or clips examples")
        change = layer_change(view, dict(deltas))
        decay = learner.decay_change(view.model, counts)
        bias = change.bias - decay[f"{learner.output_layer}.bias"]
        rows = torch.cat([change.weight - decay[f"{learner.output_layer}.weight"], bias[..., None]], dim=2).double()
        gradients = self._class_gradients(view, {name: value[None] for name, value in view.model.items()}, known)
        if not view.noise_scale(f"{learner.output_layer}.bias"):
            gradients = (gradients + self._class_gradients(view, trained_models(view, deltas), known)) / 2
        return gradients * rates[:, None, None], (rows if self.weights else rows[..., -1:]).flatten(1)

    def _class_gradients(self, view: RoundView, models: Mapping[str, Tensor], known: Auxiliary) -> Tensor:
        """``(B, K, D)`` mean descent direction of each class in the last layer."""
        features, logits = network_outputs(view.require(ClassifierAlgorithm), models, known.images)
        constant = features.new_ones(*features.shape[:2], 1)
        inputs = torch.cat([features, constant], dim=2) if self.weights else constant
        wrong = (one_hot(known.labels, logits.shape[2]) - logits.softmax(2))[:, known.by_class].double()
        wrong = wrong * (known.by_class >= 0)[..., None] / known.per_class[:, None, None]
        return (wrong.transpose(2, 3) @ inputs[:, known.by_class].double()).flatten(2)
