"""Between a view's served items, one after the other, and ranked lists."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.base import ServerView, ViewError


@dataclass(frozen=True)
class Lists:
    """The ranked lists of a view's victims.

    Attributes:
        mask: ``(V, Q, L)`` True for documents, in displayed order; padding comes last.
        features: ``(V, Q, L, F)`` as served, or None where the view holds none.
        place: ``(V, R)`` position of every served item in the flattened ``(Q, L)``, 0 where padded.
    """

    mask: Tensor
    features: Tensor | None
    place: Tensor

    def of_items(self, values: Tensor, served: Tensor) -> Tensor:
        """Values ``(V, Q, L)`` in the order of the served items, ``(V, R)``; zero where padded."""
        return values.flatten(1).gather(1, self.place).masked_fill(~served, 0)


def ranked_lists(view: ServerView) -> Lists:
    """Arranges what a view says was served.

    Raises:
        ViewError: the view holds no lists.
    """
    if view.lists is None:
        raise ViewError("expected ranked lists, got a view without `lists`; record a learner that ranks")
    served = view.served_mask
    number = view.lists.clamp(min=0)
    same = (view.lists[:, :, None] == view.lists[:, None, :]) & served[:, :, None] & served[:, None, :]
    rank = (same & torch.ones_like(same).tril(-1)).sum(2)
    count = int(number.max()) + 1 if served.any() else 1
    length = int(rank.masked_fill(~served, 0).max()) + 1 if served.any() else 1
    place = (number * length + rank).masked_fill(~served, 0)
    mask = _scatter(served.float(), place, served, count * length).bool().reshape(-1, count, length)
    features = None
    if view.features is not None:
        wide = view.features * served[..., None]
        index = place[..., None].expand_as(wide)
        flat = wide.new_zeros(len(wide), count * length, wide.shape[2]).scatter_add_(1, index, wide)
        features = flat.reshape(len(wide), count, length, -1)
    return Lists(mask, features, place)


def _scatter(values: Tensor, place: Tensor, served: Tensor, width: int) -> Tensor:
    return values.new_zeros(len(values), width).scatter_add_(1, place, values * served)
