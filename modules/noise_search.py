"""The search for the noise that is best read (RAIFLE, section IV.C): on clients that the server makes up itself."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from cmaes import CMA
from torch import Tensor

from attacks.manipulation.direct import NoiseInjection
from defenses.base import Defense, Update
from protocol.click_models import cascade_log_law, sample_patterns, steps_for_law
from protocol.seeding import generator_for
from protocol.simulators import RankingSimulator
from protocol.view import ServerView


@dataclass(frozen=True, kw_only=True)
class MadeUpClients:
    """Clients that the server simulates: real lists of its own documents, clicks drawn from the public click model.

    Attributes:
        model: the ranker that is sent, by parameter.
        features: ``(B, Q, L, F)`` real features of the lists.
        mask: ``(B, Q, L)`` True for documents; padding comes last.
        learner: the clients' algorithm.
        defenses: what clients publicly do to their updates.
    """

    model: Mapping[str, Tensor]
    features: Tensor
    mask: Tensor
    learner: RankingSimulator
    defenses: Sequence[Defense] = ()

    def sent(self, scale: float, *, seed: int) -> tuple[ServerView, Tensor]:
        """What the server sees where it injects noise of this scale, and the clicks ``(B, Q L)``.

        The clicks, the orders of the lists and the draws of the noise depend on the seed alone: scales are compared on
        the same clients.
        """
        draws = generator_for(seed, "made-up clients")
        clicks = self._clicks(draws)
        order = torch.rand(self.mask.shape[:2], generator=draws).argsort(1)
        noise = NoiseInjection(scale=scale)
        features = noise.features(self.model, self.features, self.mask, generator=draws)
        update = Update(self.learner.simulate_lists(self.model, features, self.mask, clicks, order))

        @functools.cache
        def generators(client: int) -> torch.Generator:
            return generator_for(seed, "made-up defence", client)

        for defense in self.defenses:
            update = defense.protect(update, generators)
        return self._view(features, update, noise.name), clicks.flatten(1)

    def _clicks(self, draws: torch.Generator) -> Tensor:
        steps = steps_for_law(self.learner.click_model, self.learner.grade_law, self.mask.shape[2])
        return sample_patterns(cascade_log_law(steps, self.mask), draws)

    def _view(self, features: Tensor, update: Update, manipulation: str) -> ServerView:
        clients, lists, length = self.mask.shape
        shown = self.mask.flatten(1)
        number = torch.arange(lists).repeat_interleave(length).expand(clients, -1)
        return ServerView(
            round=0,
            pseudonyms=torch.arange(clients),
            example_counts=self.mask.any(2).sum(1),
            deltas=update.deltas,
            model=self.model,
            served=torch.arange(lists * length).expand(clients, -1).where(shown, -1),
            lists=number.where(shown, -1),
            features=features.flatten(1, 2),
            releases=tuple(r for d in self.defenses for r in d.releases(tuple(self.model))),
            learner=self.learner,
            manipulation=manipulation,
        )


def evolve_scale(
    objective: Callable[[float], float],
    *,
    lowest: float,
    highest: float,
    generations: int = 4,
    population: int = 5,
    seed: int = 0,
) -> float:
    """The scale that CMA-ES ends at, searched on a logarithmic axis (Hansen and Ostermeier 2001, by `cmaes`).

    Args:
        objective: of a scale; the larger the better.
        lowest: smallest scale.
        highest: largest scale.
        generations: how often scales are drawn.
        population: scales in a generation.
        seed: seed of the draws.

    Returns:
        The mean of the last distribution: a single best draw would be the luckiest.

    Raises:
        ValueError: the range is empty.
    """
    if not 0 < lowest < highest:
        raise ValueError(f"expected 0 < lowest < highest, got {lowest} and {highest}")
    ends = np.log10([[lowest, highest]])
    search = CMA(mean=ends.mean(1), sigma=float(np.ptp(ends)) / 4, bounds=ends, seed=seed, population_size=population)
    for _ in range(generations):
        points = [search.ask() for _ in range(population)]
        # The library minimises.
        search.tell([(point, -objective(10 ** float(point[0]))) for point in points])
    return min(max(10 ** float(search.mean[0]), lowest), highest)


def mean_auc(values: Tensor) -> float:
    """The mean over clients that have an AUC; a half where none has."""
    found = float(values.nanmean())
    return found if math.isfinite(found) else 0.5
