"""Marking one document: a feature that is zero for all others (RAIFLE, section VII.C)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from attacks.interactions.list_update import HIDDEN, LINEAR, OUTPUT
from attacks.manipulation.base import Manipulation


class MarkedDocument(Manipulation):
    """Gives one document a feature that no other has; all other features stay as they are.

    Args:
        document: ``(F,)`` real features of the document, by which the server knows it.
        value: the value of its mark; large enough that the update is mostly the mark's.
    """

    name = "mark"

    def __init__(self, *, document: Tensor, value: float = 10.0) -> None:
        if value == 0:
            raise ValueError("expected a value other than 0, got 0: that is what all other documents have")
        self.document = document
        self.value = value

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        """See `Manipulation.features`."""
        marked = (features == self.document).all(-1)
        sent = features.clone()
        sent[..., marked_feature(model)] = marked * self.value
        return sent * mask[..., None]


def marked_feature(model: Mapping[str, Tensor]) -> int:
    """Number of the feature that carries the mark: the one that changes a document's score least.

    A score that is far from the others' hardly moves the ranker. In a ranker with hidden units a large mark leaves on
    those of positive weight; features for which there are none would carry nothing.
    """
    if LINEAR in model:
        return int(model[LINEAR].abs().argmin())
    on = model[HIDDEN].clamp(min=0)
    change = (model[OUTPUT] @ on).abs()
    return int(change.masked_fill(on.sum(0) == 0, torch.inf).argmin())
