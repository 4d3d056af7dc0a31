"""What a server sees of users who vote, without a training."""

import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from fedleak.client.pointwise_descent import HIDDEN_BIAS, OUTPUT_BIAS, VoteAlgorithm
from fedleak.client.ranking import ranker_parameters
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.defenses.base import Defense, Update
from fedleak.defenses.local_dp import LocalDP
from fedleak.server.feature_noise import partition_of, partitioned_noise


def voting_round(
    models: Mapping[str, Tensor],
    features: Tensor,
    votes: Tensor,
    *,
    defenses: Sequence[Defense] = (),
    generators: Callable[[int], torch.Generator],
) -> RoundView:
    """What the server sees of clients with models ``(V, *shape)`` who vote ``(V, R)`` on items ``(R, F)``."""
    clients, items = votes.shape
    learner = VoteAlgorithm()
    served = features.expand(clients, *features.shape)
    update = Update(learner.simulate_votes(models, served, votes))
    # One generator per client: a fresh one for every parameter would add the same noise to each.
    generators = functools.cache(generators)
    for defense in defenses:
        update = defense.protect(update, generators)
    return RoundView(
        round=0,
        pseudonyms=torch.arange(clients),
        example_counts=torch.full((clients,), items),
        deltas=update.deltas,
        model={},
        client_models=models,
        served=torch.arange(items).expand(clients, -1),
        features=served,
        releases=tuple(release for defense in defenses for release in defense.releases(tuple(models))),
        algorithm=learner,
    )


def models(victims: int, features: int, hidden: int, seed: int = 0) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(seed)
    drawn = [ranker_parameters(features, hidden, source, scaled=True) for _ in range(victims)]
    stacked = {name: torch.stack([model[name] for model in drawn]).double() for name in drawn[0]}
    if hidden:
        stacked[HIDDEN_BIAS] = (torch.rand(victims, hidden, generator=source) - 0.5).double()
        stacked[OUTPUT_BIAS] = (torch.rand(victims, 1, generator=source) - 0.5).double()
    return stacked


def toy(
    items: int, features: int, hidden: int, *, victims: int = 12, epsilon: float | None = None, seed: int = 0
) -> tuple[RoundView, Tensor]:
    """Users who vote on items of noise, and their votes."""
    source = torch.Generator().manual_seed(seed)
    served = partitioned_noise(partition_of(items, 2), features, partitions=2, scale=2.0, generator=source)
    votes = torch.rand(victims, items, generator=source).round()
    private = [] if epsilon is None else [LocalDP(clip=0.025, epsilon=epsilon, delta=1e-8)]
    sent = {name: value.float() for name, value in models(victims, features, hidden, seed).items()}
    view = voting_round(
        sent, served, votes, defenses=private, generators=lambda client: generator_for(seed, "defense", client)
    )
    return view, votes
