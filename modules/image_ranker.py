"""A federated ranker of images: each client votes on images whose features it extracts itself (RAIFLE, section V.C)."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from defenses.base import Defense, Update
from protocol.pointwise_descent import Items, as_parameters, as_ranker, descend
from protocol.view import ServerView


@dataclass(frozen=True, kw_only=True)
class ImageRankerLearner:
    """The public algorithm: a `protocol.simulators.PointwiseSimulator`.

    Attributes:
        learning_rate: of plain gradient descent on the mean binary cross-entropy.
        full_batch_steps: epochs, each one step over all images.
    """

    learning_rate: float = 0.01
    full_batch_steps: int = 5

    def simulate_votes(self, models: Mapping[str, Tensor], features: Tensor, votes: Tensor) -> dict[str, Tensor]:
        """Trains clients, each from a model of its own; gradients reach the votes.

        Args:
            models: by parameter ``(V, *shape)``.
            features: ``(V, R, F)``; expanded where all clients were served the same images.
            votes: ``(V, R)`` in [0, 1].

        Returns:
            Deltas by parameter, ``(V, *shape)``.
        """
        sent = as_ranker(models)
        rate, steps = self.learning_rate, self.full_batch_steps
        return as_parameters(
            descend(sent, Items(features), votes, learning_rate=rate, steps=steps)[-1].plus(sent, -1.0)
        )


def voting_round(
    models: Mapping[str, Tensor],
    features: Tensor,
    votes: Tensor,
    learner: ImageRankerLearner,
    *,
    defenses: Sequence[Defense] = (),
    generators: Callable[[int], torch.Generator],
    pseudonyms: Tensor | None = None,
    manipulation: str | None = None,
) -> ServerView:
    """What the server sees of clients who vote on images.

    Args:
        models: what each was sent, by parameter ``(V, *shape)``.
        features: ``(R, F)`` of images that all were served, or ``(V, R, F)``.
        votes: ``(V, R)``, 1 for an upvote and 0 for a downvote.
        learner: how they train.
        defenses: what they do to their updates.
        generators: source of randomness of each client's defences, by its place.
        pseudonyms: ``(V,)`` names of the clients, None for their places.
        manipulation: what was done to the images, None for nothing.
    """
    clients, items = votes.shape
    served = features if features.dim() == 3 else features.expand(clients, *features.shape)
    update = Update(learner.simulate_votes(models, served, votes))
    # One generator per client: a fresh one for every parameter would add the same noise to each.
    generators = functools.cache(generators)
    for defense in defenses:
        update = defense.protect(update, generators)
    return ServerView(
        round=0,
        pseudonyms=torch.arange(clients) if pseudonyms is None else pseudonyms,
        example_counts=torch.full((clients,), items),
        deltas=update.deltas,
        model={},
        client_models=models,
        served=torch.arange(items).expand(clients, -1),
        features=served,
        releases=tuple(release for defense in defenses for release in defense.releases(tuple(models))),
        learner=learner,
        manipulation=manipulation,
    )
