"""Features that do not change from document to document: the mark of fingerprinting (RAIFLE, section VII.D.2)."""

import torch
from torch import Tensor

from defenses.manipulation_checks.base import Check, Received


class ConstantColumns(Check):
    """How much oftener columns are constant within a list than they are in the reference, as a mean over the columns.

    Zero columns are constant ones. Real columns are constant in some lists too, short ones above all, and some in all.
    """

    name = "constant-columns"

    def statistic(self, received: Received, reference: Received) -> Tensor:
        """See `Check.statistic`; in [0, 1]."""
        usual = constant_share(reference.features.flatten(0, 1)[None], reference.mask.flatten(0, 1)[None])
        return (constant_share(received.features, received.mask) - usual).clamp(min=0).mean(1)


def constant_share(features: Tensor, mask: Tensor) -> Tensor:
    """``(C, F)`` share of each client's lists in which a column is constant, for ``(C, Q, L, F)`` and ``(C, Q, L)``."""
    documents = mask[..., None]
    highest = features.masked_fill(~documents, -torch.inf).amax(2)
    lowest = features.masked_fill(~documents, torch.inf).amin(2)
    lists = mask.any(2)[..., None]
    return ((highest == lowest) & lists).double().sum(1) / lists.sum(1).clamp(min=1)
