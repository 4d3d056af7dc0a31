"""Manipulations of features that the server sends itself: noise, permutation, fingerprints and a mark."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from attacks.manipulation.base import Manipulation, Model
from protocol.errors import ViewError
from protocol.ranges import PositiveFloat
from protocol.rankers import HIDDEN, LINEAR, OUTPUT


@dataclass(frozen=True, kw_only=True)
class NoiseInjection(Manipulation):
    """Gaussian noise in place of features.

    Args:
        scale: standard deviation of the noise (0.1 in section V.B.3).
        share_of_features: fraction of the features that are replaced, the same for all documents.
        share_of_real: weight of the real value in a replaced feature: 0 replaces it, 0.9 mixes in a tenth of noise.

    References:
        Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163, section III.C.2.
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

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        noise = torch.randn(features.shape, generator=generator) * self.scale
        mixed = self.share_of_real * features + (1 - self.share_of_real) * noise
        count = max(1, round(self.share_of_features * features.shape[-1]))
        replaced = torch.zeros(features.shape[-1], dtype=torch.bool)
        replaced[torch.randperm(features.shape[-1], generator=generator)[:count]] = True
        return torch.where(replaced, mixed, features) * mask[..., None]


@dataclass(frozen=True, kw_only=True)
class Permutation(Manipulation):
    """Random permutation of each feature's values among the documents of a list, independently for each feature.

    All values are real and every column of a list keeps its values, so that no check of single columns can detect it.
    It breaks the dependence between features, which makes the documents of a list hard to distinguish in an update.

    Args:
        among: ``list`` or ``client``: the documents among which values are permuted. With ``client``, columns that are
            constant in a list become variable.

    References:
        This project; compare Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163, section VII.D.
    """

    name = "permutation"

    among: Literal["list", "client"] = "list"

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        groups = features if self.among == "list" else features.flatten(1, 2)
        documents = (mask if self.among == "list" else mask.flatten(1))[..., None]
        draws = torch.rand(groups.shape, generator=generator).masked_fill(~documents, torch.inf)
        # Documents in a random order for each column, moved to the positions of documents.
        order = draws.argsort(dim=-2)
        place = torch.arange(groups.shape[-2])[:, None].expand_as(groups).where(documents, groups.shape[-2])
        target = place.argsort(dim=-2)
        dealt = torch.zeros_like(groups).scatter(-2, target, groups.gather(-2, order))
        return dealt.reshape(features.shape) * mask[..., None]


@dataclass(frozen=True, kw_only=True)
class Fingerprint(Manipulation):
    """Fingerprinting: a feature of its own for each document of a client, all others zero.

    The features are divided among the client's documents; if there are fewer features than documents, several documents
    share a feature and cannot be distinguished.

    Args:
        value: the value of a document's own features.

    References:
        Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163, section III.C.1.
    """

    name = "fingerprint"

    value: float = 1.0

    def __post_init__(self) -> None:
        if self.value == 0:
            raise ValueError("expected a value other than 0, got 0, for which all documents are equal")

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        width = features.shape[-1]
        number = (mask.flatten(1).cumsum(1) - 1).reshape(mask.shape)[..., None]
        documents = mask.flatten(1).sum(1).clamp(min=1).reshape(-1, 1, 1, 1)
        column = torch.arange(width)
        dealt = torch.where(documents <= width, column % documents == number, column == number % width)
        return dealt * self.value * mask[..., None]


@dataclass(frozen=True, kw_only=True, eq=False)
class MarkedDocument(Manipulation):
    """A mark on one document: a feature that is zero for all others; the other features stay real.

    Args:
        value: the value of the mark, large enough to dominate the update.
        document: ``(F,)`` real features of the document; None for the one that the data module plants.

    Raises:
        ViewError: no document is known.

    References:
        Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163, section VII.C.
    """

    name = "mark"

    value: float = 10.0
    document: Tensor | None = None

    def __post_init__(self) -> None:
        if self.value == 0:
            raise ValueError("expected a value other than 0, got 0, which all other documents have")

    def knowing(self, document: Tensor) -> "MarkedDocument":
        return dataclasses.replace(self, document=document)

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        if self.document is None:
            raise ViewError("expected a document to mark, got none: set data.private_retrieval to true")
        marked = (features == self.document).all(-1)
        sent = features.clone()
        sent[..., int(marked_feature(model))] = marked * self.value
        return sent * mask[..., None]


def marked_feature(model: Model) -> Tensor:
    """``()`` index of the feature that carries the mark: the one that changes a document's score least.

    A score far from the others hardly changes the ranker. In a ranker with hidden units a large mark activates those
    with positive weight; a feature without such units carries nothing. ``(V,)`` for a ranker of each victim.
    """
    if LINEAR in model:
        return model[LINEAR].abs().argmin(-1)
    on = model[HIDDEN].clamp(min=0)
    change = (model[OUTPUT][..., None, :] @ on).squeeze(-2).abs()
    return change.masked_fill(on.sum(-2) == 0, torch.inf).argmin(-1)
