"""Ranked lists of a view's clients, and the linear map from the clicks of a list to a client's update."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.client.fpdgd import click_coefficients, laplacian, pair_weights
from fedleak.core.errors import ViewError
from fedleak.core.rankers import rank_scores, ranker_outputs, score_gradients
from fedleak.core.view import RoundView


@dataclass(frozen=True)
class Lists:
    """The ranked lists of a view's victims, in displayed order; padding comes last.

    ``mask (V, Q, L)`` is True for documents with numbers ``document (V, Q, L)`` and ``features (V, Q, L, F)``, F = 0 if
    the view holds none; ``place (V, R)`` is the position of every served item in the flattened ``(Q, L)``, 0 where
    padded.
    """

    mask: Tensor
    features: Tensor
    place: Tensor
    document: Tensor

    def select(self, victims: Tensor) -> "Lists":
        """The lists of the victims at some positions."""
        return Lists(self.mask[victims], self.features[victims], self.place[victims], self.document[victims])

    def of_items(self, values: Tensor, served: Tensor) -> Tensor:
        """Values ``(V, Q, L)`` in the order of the served items, ``(V, R)``; zero where padded."""
        return values.flatten(1).gather(1, self.place).masked_fill(~served, 0)


def ranked_lists(view: RoundView) -> Lists:
    """The ranked lists of a view.

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
    document = torch.zeros(len(place), count * length, dtype=torch.int64)
    document.scatter_add_(1, place, view.served_items.masked_fill(~served, 0))
    shape = len(place), count, length
    return Lists(mask.reshape(shape), flat.reshape(*shape, -1), place, document.reshape(shape))


def click_map(model: Mapping[str, Tensor], features: Tensor, mask: Tensor, learning_rate: float) -> dict[str, Tensor]:
    """``(V, Q, L, P)`` change of the update per click, by parameter of size P, with pair weights at the given model.

    The model is a ranker of each victim. Documents ``(V, Q, L)`` are True in the mask and have features ``(V, Q, L,
    F)`` as served, in displayed order.
    """
    scores, gradients = ranker_outputs(model, features)
    mixing = learning_rate * laplacian(pair_weights(scores, mask))
    return {name: mixing.transpose(-1, -2) @ value.flatten(3) for name, value in gradients.items()}


def update_at(
    model: Mapping[str, Tensor], features: Tensor, mask: Tensor, clicks: Tensor, learning_rate: float
) -> dict[str, Tensor]:
    """``(V, *shape)`` by parameter: the sum of `click_map` over the clicks ``(V, Q, L)``, without its factors."""
    scores = rank_scores(model, features)
    return score_gradients(model, features, learning_rate * click_coefficients(pair_weights(scores, mask), clicks))
