"""Ranked lists of a view's clients, and the linear map from the clicks of a list to a client's update."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from protocol.pdgd import laplacian, pair_weights
from protocol.rankers import ranker_outputs
from protocol.view import ServerView, ViewError


@dataclass(frozen=True)
class Lists:
    """The ranked lists of a view's victims.

    Attributes:
        mask: ``(V, Q, L)`` True for documents, in displayed order; padding comes last.
        features: ``(V, Q, L, F)`` as served; F is 0 where the view holds none.
        place: ``(V, R)`` position of every served item in the flattened ``(Q, L)``, 0 where padded.
    """

    mask: Tensor
    features: Tensor
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
    mask = torch.zeros(len(place), count * length).scatter_add_(1, place, served.float()).bool()
    features = torch.zeros(*served.shape, 0) if view.features is None else view.features * served[..., None]
    flat = features.new_zeros(len(place), count * length, features.shape[2])
    flat.scatter_add_(1, place[..., None].expand_as(features), features)
    return Lists(mask.reshape(-1, count, length), flat.reshape(len(place), count, length, -1), place)


def model_deltas(view: ServerView) -> dict[str, Tensor]:
    """Deltas of all of the ranker's parameters, ``(V, *shape)`` each.

    Raises:
        ViewError: clients sent something else, or some were not recorded.
    """
    missing = [name for name in view.model if name not in view.deltas]
    if missing:
        raise ViewError(
            f"expected the deltas of {', '.join(missing)}, got {', '.join(view.deltas)}; record all of them"
        )
    return {name: view.deltas[name] for name in view.model}


def click_map(model: Mapping[str, Tensor], features: Tensor, mask: Tensor, learning_rate: float) -> dict[str, Tensor]:
    """What one click adds to the update, with pair weights as they are at the given model.

    Args:
        model: each victim's ranker; see `ranker_outputs`.
        features: ``(V, Q, L, F)`` as served, in displayed order.
        mask: ``(V, Q, L)`` True for documents.
        learning_rate: local learning rate.

    Returns:
        By parameter ``(V, Q, L, P)``, P its numbers.
    """
    scores, gradients = ranker_outputs(model, features)
    mixing = learning_rate * laplacian(pair_weights(scores, mask))
    return {name: mixing.transpose(-1, -2) @ value.flatten(3) for name, value in gradients.items()}
