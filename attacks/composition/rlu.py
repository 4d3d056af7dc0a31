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
        [Chen24], Algorithms 1 and 2.

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import RLU
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = RLU()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.0
    """

    name = "rlu"
    references = ("Chen24, Algorithms 1 and 2",)
    threat_model = dataclasses.replace(
        LabelInference.threat_model, sees="the update, the global model and how many examples the client reports"
    )

    searches: PositiveInt = 5

    def class_weights(self, view: RoundView, image_pool: Auxiliary, *, generator: torch.Generator) -> Tensor:
        change = layer_change(view)
        global_model = {name: parameter[None] for name, parameter in view.model.items()}
        _, start = class_outputs(view, image_pool, global_model)
        _, end = class_outputs(view, image_pool, trained_models(view, view.deltas))
        soft = class_means(image_pool, start.softmax(2))
        rate = self.bias_rate(view, image_pool, soft[0], generator=generator)
        # A step moves logits by the bias's change times |h|^2, where h = dW / db is the mean feature.
        bias = change.bias.double()
        bias = bias.where(bias.abs() > 1e-12, 1e-12)
        feature = (change.weight.double() / bias[..., None]).mean(1)
        shift = rate * feature.square().sum(1, keepdim=True)
        true_shift = (end - start).mean(1)
        steps = view.require(ClassifierAlgorithm).steps(view.example_counts)[:, None]
        # The search starts from the shares that the mean of both ends gives.
        soft_at_end = class_means(image_pool, end.softmax(2))
        shares = self.solve(view, (soft + soft_at_end) / 2, rate)
        shares = shares / shares.sum(1, keepdim=True)
        one_label_per_step = steps / view.example_counts[:, None]
        for _ in range(self.searches):
            simulated_shift, _ = _trajectory(image_pool, start, shares, shift, steps)
            excess = simulated_shift - true_shift
            is_off = excess.abs().amax(1, keepdim=True) >= _TOLERANCE
            # The class with the largest excess loses a label per step, of those that have as many; the one that
            # falls short most gains it.
            giving = excess.masked_fill(shares < one_label_per_step, -torch.inf)
            minus = one_hot(giving.argmax(1), shares.shape[1]) * (giving.amax(1, keepdim=True) >= 0)
            plus = one_hot(excess.argmin(1), shares.shape[1]) * (excess.amin(1, keepdim=True) < 0)
            is_corrected = is_off & minus.any(1, keepdim=True) & plus.any(1, keepdim=True)
            shares = shares + one_label_per_step * (plus - minus) * is_corrected
        _, mean_soft = _trajectory(image_pool, start, shares, shift, steps)
        return self.solve(view, mean_soft, rate)


def _trajectory(
    image_pool: Auxiliary, start: Tensor, shares: Tensor, shift: Tensor, steps: Tensor
) -> tuple[Tensor, Tensor]:
    """Simulated shift of the logits ``(V, K)`` by all steps, and mean softmax ``(V, K, K)`` by class over the steps.

    Images have logits ``start (1, M, K)`` before training; a step with a mean negative gradient of one moves a logit by
    ``shift (V, K)``; clients with ``shares (V, K)`` make ``steps (V, 1)``.
    """
    classes = shares.shape[1]
    logit_shift = torch.zeros_like(shares)
    soft_sum = start.new_zeros(len(shares), classes, classes)
    for step in range(int(steps.max())):
        soft = class_means(image_pool, (start + logit_shift[:, None]).softmax(2))
        is_training = step < steps  # clients with fewer steps have ended
        soft_sum += soft * is_training[..., None]
        gradient = shares - (shares[:, None] @ soft).squeeze(1)  # q - S' q
        logit_shift = logit_shift + is_training * shift * gradient
    return logit_shift, soft_sum / steps[..., None]
