"""A mark on one document, which tells whether a client retrieved it privately."""

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from fedleak.core.errors import ViewError, require
from fedleak.core.rankers import HIDDEN, LINEAR, OUTPUT
from fedleak.defenses.manipulation_checks import ConstantColumns
from fedleak.server.deviation import Notice
from fedleak.server.feature_manipulation import FeatureManipulation, Model


@dataclass(frozen=True, kw_only=True, eq=False)
class MarkedDocument(FeatureManipulation):
    """A mark on one document: a feature that is zero for all others; the other features stay real.

    Args:
        value: the value of the mark, large enough to dominate the update.
        document: ``(F,)`` real features of the document; None for the one that the data module plants.

    Raises:
        InputError: the value is 0 or no finite number.
        ViewError: no document is known.

    References:
        [Pham25], section VII.C.
    """

    name = "mark"
    does = "marks one document by a large value of a feature that is zero for all others"
    noticed = (Notice("client", "a column that is constant over lists without the document", (ConstantColumns,)),)
    references = ("Pham25, section VII.C",)

    value: float = 10.0
    document: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            isinstance(self.value, int | float) and math.isfinite(self.value) and self.value != 0,
            "a finite value of the mark other than 0, which all other documents have",
            self.value,
            "Give a large number, such as 10.",
        )

    def knowing(self, document: Tensor) -> "MarkedDocument":
        return dataclasses.replace(self, document=document)

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        if self.document is None:
            raise ViewError("expected a document to mark, got none: set data.private_retrieval to true")
        is_marked = (features == self.document).all(-1)
        sent = features.clone()
        sent[..., int(marked_feature(model))] = is_marked * self.value
        return sent * mask[..., None]


def marked_feature(model: Model) -> Tensor:
    """``()`` index of the feature that carries the mark: the one that changes a document's score least.

    A score far from the others hardly changes the ranker. In a ranker with hidden units a large mark activates those
    with positive weight; a feature without such units carries nothing. ``(V,)`` for a ranker of each victim.
    """
    if LINEAR in model:
        return model[LINEAR].abs().argmin(-1)
    # A large mark of feature f activates the units with a positive weight of f, and adds sum_h o_h max(w_hf, 0).
    activated = model[HIDDEN].clamp(min=0)
    change = (model[OUTPUT][..., None, :] @ activated).squeeze(-2).abs()
    return change.masked_fill(activated.sum(-2) == 0, torch.inf).argmin(-1)
