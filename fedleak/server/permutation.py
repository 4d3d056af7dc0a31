"""Permuted features: every value is real, and the documents are hard to tell apart."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from fedleak.defenses.within_list_checks import Correlation
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
        This project; compare [Pham25], section VII.D.
    """

    name = "permutation"
    does = "permutes the values of each feature among the documents of a list, or of a client"
    noticed = (Notice("client", "features of a document that no longer fit together", (Correlation,)),)

    among: Literal["list", "client"] = "list"

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        groups = features
        is_document = mask[..., None]
        if self.among == "client":
            groups = features.flatten(1, 2)
            is_document = mask.flatten(1)[..., None]
        # For each column, documents in a random order; padding comes last.
        draws = torch.rand(groups.shape, generator=generator).masked_fill(~is_document, torch.inf)
        order = draws.argsort(dim=-2)
        # They are moved to the positions of documents, which are sorted before those of padding.
        last = groups.shape[-2]
        position = torch.arange(last)[:, None].expand_as(groups).where(is_document, last)
        in_random_order = groups.gather(-2, order)
        permuted = torch.zeros_like(groups).scatter(-2, position.argsort(dim=-2), in_random_order)
        return permuted.reshape(features.shape) * mask[..., None]
