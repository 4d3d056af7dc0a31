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
        This project. The identity of the bias is that of [Wainakh22], and of [Ramakrishna22].

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import ClosedForm
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = ClosedForm()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.03
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
        image_pool = auxiliary(view, layer_change(view).bias.shape[1], self.auxiliary_per_class)
        shares, deviation = self.shares(view, image_pool, view.deltas, view.example_counts)
        # A share is present if it exceeds `least` and the error that noise gives it; the largest one always is.
        is_clear = shares > deviation.clamp(min=self.least)
        is_largest = shares == shares.amax(1, keepdim=True)
        present = is_clear | is_largest
        return certain(shares * present, present)

    def shares(
        self, view: RoundView, image_pool: Auxiliary, deltas: Mapping[str, Tensor], counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Shares ``(B, K)`` of clients with these deltas ``(B, *shape)`` and example counts ``(B,)``.

        The second result is their standard deviation due to noise that the clients add.
        """
        response, change = self._linear(view, image_pool, deltas, counts)
        bias = f"{view.require(ClassifierAlgorithm).output_layer}.bias"
        # Normal equations of `change = J' q`: J J' q = J change.
        precision = response @ response.transpose(1, 2)
        target = (response @ change[..., None]).squeeze(2)
        noise = view.noise_scale(bias)
        classes = precision.shape[1]
        if noise:
            # Posterior of shares with the normal prior N(1 / K, _PRIOR^2).
            prior = torch.eye(classes).double() / _PRIOR**2
            precision = precision / noise**2 + prior
            target = target / noise**2 + prior.sum(1) / classes
        is_clipped = view.clip(bias) is not None
        shares = shares_on_simplex(precision, target, scaled=is_clipped)
        deviation = torch.linalg.pinv(precision).diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
        return shares, deviation * bool(noise)

    def _linear(
        self, view: RoundView, image_pool: Auxiliary, deltas: Mapping[str, Tensor], counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Response ``(B, K, D)`` of the last layer to the shares, and its change ``(B, D)``."""
        learner = view.require(ClassifierAlgorithm)
        rates = learner.step_sums(counts)
        if rates is None:
            raise ViewError("expected clients with SGD, got an optimizer that scales parameters or clips examples")
        # The change that the gradients make: without that of weight decay.
        layer = learner.output_layer
        change = layer_change(view, dict(deltas))
        decay = learner.decay_change(view.model, counts)
        bias = change.bias - decay[f"{layer}.bias"]
        weight = change.weight - decay[f"{layer}.weight"]
        rows = torch.cat([weight, bias[..., None]], dim=2).double()
        if not self.weights:
            rows = rows[..., -1:]
        # The mean of the gradients at both ends of the training; noise hides the end.
        global_model = {name: parameter[None] for name, parameter in view.model.items()}
        gradients = self._class_gradients(view, global_model, image_pool)
        if not view.noise_scale(f"{layer}.bias"):
            gradients_at_end = self._class_gradients(view, trained_models(view, deltas), image_pool)
            gradients = (gradients + gradients_at_end) / 2
        return gradients * rates[:, None, None], rows.flatten(1)

    def _class_gradients(self, view: RoundView, models: Mapping[str, Tensor], image_pool: Auxiliary) -> Tensor:
        """``(B, K, D)`` mean descent direction of each class in the last layer."""
        features, logits = network_outputs(view.require(ClassifierAlgorithm), models, image_pool.images)
        inputs = features.new_ones(*features.shape[:2], 1)
        if self.weights:
            inputs = torch.cat([features, inputs], dim=2)
        # y - p of each image, class after class; padding of a class with few images counts as zero.
        by_class = image_pool.by_class
        descent = (one_hot(image_pool.labels, logits.shape[2]) - logits.softmax(2))[:, by_class].double()
        descent = descent * (by_class >= 0)[..., None] / image_pool.per_class[:, None, None]
        # Mean of (y - p) h' over the images of a class.
        return (descent.transpose(2, 3) @ inputs[:, by_class].double()).flatten(2)
