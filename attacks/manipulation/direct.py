"""Adversarial data manipulation of features that the server sends itself: noise, permutation, fingerprints, a mark."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attacks.manipulation.base import Manipulation
from protocol.rankers import HIDDEN, LINEAR, OUTPUT
from protocol.view import ViewError
from ranges import PositiveFloat


@dataclass(frozen=True, kw_only=True)
class NoiseInjection(Manipulation):
    """Gaussian noise in place of features (RAIFLE, sections III.C.2 and V.B.3: all of them, scale 0.1).

    Args:
        scale: standard deviation of the noise.
        share_of_features: fraction of the features that are replaced, the same for all documents.
        share_of_real: weight of the real value in a replaced feature: 0 replaces it, 0.9 hides a tenth of noise in it.
    """

    name = "noise"

    scale: PositiveFloat = 0.1
    share_of_features: float = 1.0
    share_of_real: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share_of_features <= 1:
            raise ValueError(f"expected share_of_features in (0, 1], got {self.share_of_features}")
        if not 0 <= self.share_of_real < 1:
            raise ValueError(f"expected share_of_real in [0, 1), got {self.share_of_real}")

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        noise = torch.randn(features.shape, generator=generator) * self.scale
        mixed = self.share_of_real * features + (1 - self.share_of_real) * noise
        count = max(1, round(self.share_of_features * features.shape[-1]))
        replaced = torch.zeros(features.shape[-1], dtype=torch.bool)
        replaced[torch.randperm(features.shape[-1], generator=generator)[:count]] = True
        return torch.where(replaced, mixed, features) * mask[..., None]


@dataclass(frozen=True, kw_only=True)
class Permutation(Manipulation):
    """Values of each feature dealt out anew among the documents of a list, each feature in an order of its own; ours.

    Every value is real and every column of a list holds the values that it held before, so that no check of single
    columns can tell; what it breaks is the dependence between features, which is what keeps the real documents of a
    list from being distinguishable in an update.

    Args:
        among: ``list`` or ``client``: whether values stay in their list. Among all documents of a client, a column that
            is constant in a list is constant no longer.
    """

    name = "permutation"

    among: Literal["list", "client"] = "list"

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        groups = features if self.among == "list" else features.flatten(1, 2)
        documents = (mask if self.among == "list" else mask.flatten(1))[..., None]
        draws = torch.rand(groups.shape, generator=generator).masked_fill(~documents, torch.inf)
        # Documents in random order, one order for each column, are put where documents are, in the order of places.
        order = draws.argsort(dim=-2)
        place = torch.arange(groups.shape[-2])[:, None].expand_as(groups).where(documents, groups.shape[-2])
        target = place.argsort(dim=-2)
        dealt = torch.zeros_like(groups).scatter(-2, target, groups.gather(-2, order))
        return dealt.reshape(features.shape) * mask[..., None]


@dataclass(frozen=True, kw_only=True)
class Fingerprint(Manipulation):
    """A feature of its own for each document of a client, all others zero (RAIFLE, section III.C.1).

    The features are dealt out over the client's documents; where there are fewer features than documents, documents
    share one and are no longer distinguishable.

    Args:
        value: the value of a document's own features.
    """

    name = "fingerprint"

    value: float = 1.0

    def __post_init__(self) -> None:
        if self.value == 0:
            raise ValueError("expected a value other than 0, got 0: then all documents would be alike")

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        width = features.shape[-1]
        number = (mask.flatten(1).cumsum(1) - 1).reshape(mask.shape)[..., None]
        documents = mask.flatten(1).sum(1).clamp(min=1).reshape(-1, 1, 1, 1)
        column = torch.arange(width)
        dealt = torch.where(documents <= width, column % documents == number, column == number % width)
        return dealt * self.value * mask[..., None]


@dataclass(frozen=True, kw_only=True, eq=False)
class MarkedDocument(Manipulation):
    """A mark on one document, a feature that is zero for all others (RAIFLE, section VII.C); the rest stays real.

    Args:
        value: the value of the mark; large enough that the update is mostly the mark's.
        document: ``(F,)`` real features of the document, by which the server knows it; None for what the data plant.

    Raises:
        ViewError: no document is known.
    """

    name = "mark"

    value: float = 10.0
    document: Tensor | None = None

    def __post_init__(self) -> None:
        if self.value == 0:
            raise ValueError("expected a value other than 0, got 0: that is what all other documents have")

    def knowing(self, document: Tensor) -> "MarkedDocument":
        """The mark on this document."""
        return dataclasses.replace(self, document=document)

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        if self.document is None:
            raise ViewError("expected a document to mark, got none: set data.private_retrieval to true")
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
