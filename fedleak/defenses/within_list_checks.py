"""Checks of what the documents of one list have in common: their scores, and how their features go together."""

import torch
from torch import Tensor

from fedleak.core.rankers import ranker_outputs
from fedleak.defenses.manipulation_checks import Check, Received

_LEAST = 1e-6
"""Relative spread of scores below which all spreads are considered equal (rounding)."""
_CONSTANT = 1e-6
"""Norm of a column about its lists' means, over its norm, up to which it is constant in every list."""


class EqualScores(Check):
    """Mean log ratio of the usual spread of scores within a list to the client's; detects codebooks (this project).

    A codebook gives all documents of a list the same score. The maximum is ``-log(1e-6)``.
    """

    name = "equal-scores"

    def statistic(self, received: Received, reference: Received) -> Tensor:
        usual = score_spread(reference)[reference.mask.any(2)].mean()
        usual = usual.clamp(min=torch.finfo(torch.float64).tiny)
        log_ratio = -(score_spread(received) / usual).clamp(min=_LEAST).log()
        is_list = received.mask.any(2)
        return (log_ratio * is_list).sum(1) / is_list.sum(1).clamp(min=1)


def score_spread(received: Received) -> Tensor:
    """``(C, Q)`` standard deviation, in float64, of each list's scores under the model sent; 0 for an empty list."""
    model = {name: parameter.double() for name, parameter in received.model.items()}
    scores, _ = ranker_outputs(model, received.features.double())
    count = received.mask.sum(2).clamp(min=1)
    mean = (scores * received.mask).sum(2) / count
    deviations = (scores - mean[..., None]) * received.mask
    return (deviations.square().sum(2) / count).sqrt()


class Correlation(Check):
    """One minus the cosine of the feature correlations within lists and the reference's, in [0, 2] (this project)."""

    name = "correlation"

    def statistic(self, received: Received, reference: Received) -> Tensor:
        features, mask = reference.pooled()
        usual = list_correlations(features, mask)
        correlations = list_correlations(received.features, received.mask)
        return 1 - torch.cosine_similarity(correlations.flatten(1), usual.flatten(1), dim=1)


def list_correlations(features: Tensor, mask: Tensor) -> Tensor:
    """``(C, F, F)`` correlations of features ``(C, Q, L, F)`` between documents of the same list.

    Zero on the diagonal and for columns that are constant in every list; ``mask (C, Q, L)`` is True for documents.
    """
    # Each list about its own mean.
    is_document = mask[..., None]
    values = features.double() * is_document
    mean = values.sum(2, keepdim=True) / is_document.sum(2, keepdim=True).clamp(min=1)
    centred = ((values - mean) * is_document).flatten(1, 2)
    # A constant column has only rounding errors left, and no correlation.
    centred_norm = centred.norm(dim=1, keepdim=True)
    norm = values.flatten(1, 2).norm(dim=1, keepdim=True)
    unit = (centred / centred_norm.clamp(min=1e-30)).where(centred_norm > _CONSTANT * norm, 0.0)
    products: Tensor = unit.transpose(1, 2) @ unit
    return products * (1 - torch.eye(products.shape[-1], dtype=products.dtype))
