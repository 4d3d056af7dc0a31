"""Permuted features: every value is real, and the documents are hard to tell apart."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from fedleak.defenses.manipulation_checks import Correlation
from fedleak.server.deviation import Notice
from fedleak.server.feature_manipulation import FeatureManipulation, Model


@dataclass(frozen=True, kw_only=True)
class Permutation(FeatureManipulation):
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
    does = "permutes the values of each feature among the documents of a list, or of a client"
    noticed = (Notice("client", "features of a document that no longer fit together", (Correlation,)),)

    among: Literal["list", "client"] = "list"

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        groups = features if self.among == "list" else features.flatten(1, 2)
        documents = (mask if self.among == "list" else mask.flatten(1))[..., None]
        draws = torch.rand(groups.shape, generator=generator).masked_fill(~documents, torch.inf)
        # Documents in a random order for each column, moved to the positions of documents.
        order = draws.argsort(dim=-2)
        place = torch.arange(groups.shape[-2])[:, None].expand_as(groups).where(documents, groups.shape[-2])
        dealt = torch.zeros_like(groups).scatter(-2, place.argsort(dim=-2), groups.gather(-2, order))
        return dealt.reshape(features.shape) * mask[..., None]
