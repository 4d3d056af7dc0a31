"""Genie: what an attack would infer that knows everything about a client except the labels that it guesses.

It needs the ground truth, so it is no attack but a bound: no attack to which all choices of the positive items are
equally likely has a larger mean AUC on the same features, model and defence.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fedleak.client.pointwise_descent import Items, VoteAlgorithm, as_parameters, as_ranker, descend
from fedleak.client.ranked_lists import ranked_lists
from fedleak.client.ranking import RankingAlgorithm
from fedleak.client.recommendation import RecommenderAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
from fedleak.evaluation.channel import Channel

_NUMBERS_AT_ONCE = 2**25
"""Numbers of updates that are simulated at once."""
_SAME = 1e-6
"""Relative distance up to which two updates without noise are equal, for float32."""


def genie_auc(
    view: RoundView, labels: Tensor, *, users: Tensor | None = None, pairs: int, generator: torch.Generator
) -> Tensor:
    """``(V,)`` AUC of a genie that orders a client's positive and negative items, in pairs.

    For each pair it knows that one of the two items is positive, and the labels of all others, the features, the model,
    an order of the training and the user vector. What remains is a test between two updates at the distance d under
    Gaussian noise of standard deviation sigma; the larger likelihood is right with probability ``Phi(d / (2 sigma))``.
    Both updates are simulated with the clients' algorithm and clipped.

    Args:
        view: what the server saw of the clients.
        labels: ``(V, R)`` true interactions with the served items.
        users: ``(V, user_dim)`` the clients' private vectors before the round, for a recommender.
        pairs: pairs drawn for each client.
        generator: source of the pairs.

    Returns:
        NaN for clients without positive or without other items.

    Raises:
        ViewError: the clients' algorithm cannot be simulated.

    References:
        [Neyman33].
    """
    mask = view.served_mask
    positive = (labels[:, : mask.shape[1]] > 0.5) & mask
    negative = mask & ~positive
    auc = torch.full((view.victims,), torch.nan, dtype=torch.float64)
    noise_scale = Channel.of(view).noise_scale
    # Clients with both kinds of items, those of similar size together, as these have little padding.
    owners = (positive.any(1) & negative.any(1)).nonzero().squeeze(1)
    owners = owners[mask[owners].sum(1).argsort(stable=True)]
    numbers = sum(value[0].numel() for value in view.deltas.values()) * (pairs + 1)
    for chunk in torch.split(owners, max(1, _NUMBERS_AT_ONCE // numbers)):
        part = view.select(chunk)
        true_labels = positive[chunk].float()
        # In each pair the label of a positive item is exchanged with that of a negative one.
        ones = torch.multinomial(positive[chunk].float(), pairs, replacement=True, generator=generator)
        zeros = torch.multinomial(negative[chunk].float(), pairs, replacement=True, generator=generator)
        exchanged = true_labels[:, None].repeat(1, pairs, 1)
        exchanged.scatter_(2, ones[..., None], 0.0).scatter_(2, zeros[..., None], 1.0)
        hypotheses = torch.cat([true_labels[:, None], exchanged], dim=1)
        users_of_chunk = None if users is None else users[chunk]
        updates = _simulated(part, hypotheses, users_of_chunk)
        distance = (updates[:, 1:] - updates[:, :1]).norm(dim=2).double()
        # Phi(d / (2 sigma)); without noise, 1 for different updates and a coin's toss for equal ones.
        if noise_scale:
            chance = 0.5 * (1 + torch.erf(distance / (2 * math.sqrt(2) * noise_scale)))
        else:
            different = distance > _SAME * updates[:, 0].norm(dim=1, keepdim=True)
            chance = torch.where(different, 1.0, 0.5).double()
        auc[chunk] = chance.mean(1)
    return auc


def _simulated(view: RoundView, labels: Tensor, users: Tensor | None) -> Tensor:
    """Clipped updates ``(V, K, P)`` of the view's clients with ``labels (V, K, R)``."""
    victims, times = labels.shape[:2]
    simulate = _clients(view, users)
    owners = torch.arange(victims).repeat_interleave(times)
    simulated = simulate(owners, labels.flatten(0, 1))
    deltas = {name: simulated[name] for name in view.deltas}
    clipped = [delta.flatten(1) * view.clip_factors(name, deltas)[:, None] for name, delta in deltas.items()]
    return torch.cat(clipped, dim=1).reshape(victims, times, -1)


def _clients(view: RoundView, users: Tensor | None) -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
    """Deltas by parameter, ``(B, *shape)``, of the clients at positions ``(B,)`` with labels ``(B, R)``."""
    learner = view.algorithm
    if isinstance(learner, RankingAlgorithm):
        lists = ranked_lists(view)
        rankers = view.sent_models()

        def rank(owners: Tensor, labels: Tensor) -> dict[str, Tensor]:
            mask = lists.mask[owners]
            model = {name: value[owners] for name, value in rankers.items()}
            clicks = torch.zeros(len(owners), mask[0].numel())
            # Padding has the place of the first document.
            clicks.scatter_add_(1, lists.place[owners], labels * view.served_mask[owners])
            clicks = clicks.reshape(mask.shape)
            return learner.simulate_lists(model, lists.features[owners], mask, clicks, document=lists.document[owners])

        return rank
    if isinstance(learner, VoteAlgorithm) and view.features is not None:
        models = view.sent_models()
        features = view.features

        def vote(owners: Tensor, labels: Tensor) -> dict[str, Tensor]:
            start = as_ranker({name: value[owners] for name, value in models.items()})
            # Features that all clients share are expanded, with a stride of 0.
            item_features = features[:1] if features.stride(0) == 0 else features[owners]
            items = Items(item_features, biases=start.biases)
            path = descend(
                start,
                items,
                labels.to(features),
                learning_rate=learner.learning_rate,
                steps=learner.full_batch_steps,
            )
            return as_parameters(path[-1].plus(start, -1.0))

        return vote
    if isinstance(learner, RecommenderAlgorithm) and users is not None:
        width = int(view.served_mask.sum(1).max())

        def recommend(owners: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return learner.simulate(view.model, view.served_items[owners, :width], labels[:, :width], users[owners])

        return recommend
    raise ViewError(f"expected clients that can be simulated with given labels, got {type(learner).__name__}")
