"""Soteria: the features by which an example is best reconstructed are left out of one layer's gradient."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from fedleak.core.errors import require
from fedleak.defenses.base import Defense, LocalStep

_TINY = 1e-12
"""Least norm of a derivative: features that no input changes have the largest ratios."""
_FEATURES_AT_ONCE = 16
"""Features whose derivatives are computed together: each takes as much memory as the batch."""


class Soteria(Defense):
    """Soteria: the last layer's weight gets its gradient from features of which some are zero, for each example.

    With features r of an example x and the error d by the logits, the gradient of the weight is ``d (m r)^T`` in place
    of ``d r^T``. The mask m is 0 for the given share of the features, those with the largest ``|r_f| / |dr_f / dx|``.
    All other gradients, the bias's too, stay. For a batch, the published code has one mask from the sum of the inverse
    ratios; here each example has its own, as in the publication's derivation, which is the same for one example.

    The publication minimises the norm of ``r (dr / dx)^-1``, which its code replaces by this ratio.

    Args:
        share: share of the features that are left out, from 0 to 1 (published: 0.01 to 0.8, by attack).

    References:
        [Sun21]; its code and several copies of it could be read.
    """

    def __init__(self, *, share: float) -> None:
        is_valid = math.isfinite(share) and 0 <= share <= 1
        require(is_valid, "Soteria.share from 0 to 1", f"{share:g}", "Give 0.8, or 0 for no defence.")
        self.share = share

    def change_gradients(self, step: LocalStep, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.share == 0:
            return gradients
        require(
            step.independent,
            "for Soteria, a network whose output for an example depends on no other",
            "batch norm",
            "Set model.network.norm: none, or another network.",
        )
        features, logits = step.classify(step.inputs)
        left_out = pruned(features, feature_norms(step), self.share)
        # The errors d: derivatives of the mean loss over the real examples by the logits.
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            losses = functional.cross_entropy(logits, step.labels, reduction="none") * step.mask
            mean_loss = losses.sum() / step.mask.sum().clamp(min=1)
            (errors,) = torch.autograd.grad(mean_loss, logits)
        # d (m r)^T is the gradient d r^T without the part of the features that are left out.
        name = f"{step.output}.weight"
        without_pruned = gradients[name] - errors.t() @ (features * left_out)
        return {**gradients, name: without_pruned}


def feature_norms(step: LocalStep) -> Tensor:
    """``(N, F)`` L2 norm of the derivative of each feature by its example."""
    features, backward, *_ = torch.func.vjp(lambda inputs: step.classify(inputs)[0], step.inputs)

    def norms_of_one(direction: Tensor) -> Tensor:
        """``(N,)`` norms for the feature of a unit vector ``(F,)``, by one backward pass for all examples."""
        (derivative,) = backward(direction.expand_as(features))
        norms: Tensor = derivative.flatten(1).norm(dim=1)
        return norms

    unit_vectors = torch.eye(features.shape[1]).to(features)
    by_feature: Tensor = torch.vmap(norms_of_one, chunk_size=_FEATURES_AT_ONCE)(unit_vectors)
    return by_feature.t()


def pruned(features: Tensor, norms: Tensor, share: float) -> Tensor:
    """``(N, F)`` 1 for the `share` of each example's features with the largest ratio of value and ``norms (N, F)``."""
    ratios = features.detach().abs() / norms.clamp(min=_TINY)
    chosen = ratios.topk(round(share * features.shape[1]), dim=1).indices
    return torch.zeros_like(ratios).scatter_(1, chosen, 1.0)
