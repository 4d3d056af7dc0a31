"""Features that depend on one another otherwise than real ones do: what a permutation of real values breaks, ours."""

import torch
from torch import Tensor

from defenses.manipulation_checks.base import Check, Received


class Correlation(Check):
    """One less the cosine between a client's correlations of features within its lists, and the reference's."""

    name = "correlation"

    def statistic(self, received: Received, reference: Received) -> Tensor:
        """See `Check.statistic`; in [0, 2], and 1 where nothing depends on anything."""
        pooled = list_correlations(reference.features.flatten(0, 1)[None], reference.mask.flatten(0, 1)[None])
        own = list_correlations(received.features, received.mask)
        return 1 - torch.cosine_similarity(own.flatten(1), pooled.flatten(1), dim=1)


def list_correlations(features: Tensor, mask: Tensor) -> Tensor:
    """Correlations between features of documents of the same list, for ``(C, Q, L, F)`` and ``(C, Q, L)``.

    Returns:
        ``(C, F, F)``, zero on the diagonal and where a column is constant in every list.
    """
    documents = mask[..., None]
    values = features.double() * documents
    mean = values.sum(2, keepdim=True) / documents.sum(2, keepdim=True).clamp(min=1)
    centred = ((values - mean) * documents).flatten(1, 2)
    norms = centred.norm(dim=1, keepdim=True)
    # A constant column leaves rounding behind its mean, and no correlation.
    length = values.flatten(1, 2).norm(dim=1, keepdim=True)
    unit = (centred / norms.clamp(min=1e-30)).where(norms > 1e-6 * length, 0.0)
    products: Tensor = unit.transpose(1, 2) @ unit
    return products * (1 - torch.eye(products.shape[-1], dtype=products.dtype))
