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
    list_number = view.lists.clamp(min=0)
    # The rank of an item is the number of earlier items of the same list: items come in displayed order.
    same_list = view.lists[:, :, None] == view.lists[:, None, :]
    same_list = same_list & served[:, :, None] & served[:, None, :]
    rank = (same_list & torch.ones_like(same_list).tril(-1)).sum(2)
    list_count = 1
    length = 1
    if served.any():
        list_count = int(list_number.max()) + 1
        length = int(rank.masked_fill(~served, 0).max()) + 1
    flat_position = (list_number * length + rank).masked_fill(~served, 0)
    # Values go to their position by addition; padding, at position 0, adds zeros.
    size = list_count * length
    mask = torch.zeros(len(flat_position), size).scatter_add_(1, flat_position, served.float()).bool()
    features = torch.zeros(*served.shape, 0)
    if view.features is not None:
        features = view.features * served[..., None]
    flat_features = features.new_zeros(len(flat_position), size, features.shape[2])
    flat_features.scatter_add_(1, flat_position[..., None].expand_as(features), features)
    document = torch.zeros(len(flat_position), size, dtype=torch.int64)
    document.scatter_add_(1, flat_position, view.served_items.masked_fill(~served, 0))
    shape = (len(flat_position), list_count, length)
    return Lists(
        mask=mask.reshape(shape),
        features=flat_features.reshape(*shape, -1),
        place=flat_position,
        document=document.reshape(shape),
    )


def click_map(model: Mapping[str, Tensor], features: Tensor, mask: Tensor, learning_rate: float) -> dict[str, Tensor]:
    """``(V, Q, L, P)`` change of the update per click, by parameter of size P, with pair weights at the given model.

    The model is a ranker of each victim. Documents ``(V, Q, L)`` are True in the mask and have features ``(V, Q, L,
    F)`` as served, in displayed order.
    """
    scores, gradients = ranker_outputs(model, features)
    # The update is lr sum_i c_i grad s_i with c = (diag(w 1) - w) I: linear in the clicks I.
    mixing = learning_rate * laplacian(pair_weights(scores, mask))
    return {name: mixing.transpose(-1, -2) @ value.flatten(3) for name, value in gradients.items()}


def update_at(
    model: Mapping[str, Tensor], features: Tensor, mask: Tensor, clicks: Tensor, learning_rate: float
) -> dict[str, Tensor]:
    """``(V, *shape)`` by parameter: the sum of `click_map` over the clicks ``(V, Q, L)``, without its factors."""
    scores = rank_scores(model, features)
    return score_gradients(model, features, learning_rate * click_coefficients(pair_weights(scores, mask), clicks))
