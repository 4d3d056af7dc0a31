"""Permutation, ours: real values in the wrong documents, the server's answer to checks of the values."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from attacks.manipulation.base import Manipulation


class Permutation(Manipulation):
    """Deals the values of each feature out anew among the documents of a list, each feature in an order of its own.

    Every value is real and every column of a list holds the values that it held before, so that no check of single
    columns can tell; what it breaks is the dependence between features, which is what keeps the real documents of a
    list from being told apart by an update.

    Args:
        among: ``list`` or ``client``: whether values stay in their list. Among all documents of a client, a column that
            is constant in a list is constant no longer.
    """

    name = "permutation"

    def __init__(self, *, among: Literal["list", "client"] = "list") -> None:
        if among not in ("list", "client"):
            raise ValueError(f"expected among 'list' or 'client', got {among!r}")
        self.among = among

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        """See `Manipulation.features`."""
        groups = features if self.among == "list" else features.flatten(1, 2)
        documents = (mask if self.among == "list" else mask.flatten(1))[..., None]
        draws = torch.rand(groups.shape, generator=generator).masked_fill(~documents, torch.inf)
        # Documents in random order, one order for each column, are put where documents are, in the order of places.
        order = draws.argsort(dim=-2)
        place = torch.arange(groups.shape[-2])[:, None].expand_as(groups).where(documents, groups.shape[-2])
        target = place.argsort(dim=-2)
        dealt = torch.zeros_like(groups).scatter(-2, target, groups.gather(-2, order))
        return dealt.reshape(features.shape) * mask[..., None]
