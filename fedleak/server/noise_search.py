"""Search for the noise scale that leaks most (RAIFLE, section IV.C), on clients that the server simulates."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from cmaes import CMA
from torch import Tensor

from fedleak.client.click_models import cascade_log_law, sample_patterns, steps_for_law
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.defenses.base import Defense, Update
from fedleak.server.noise_injection import NoiseInjection


@dataclass(frozen=True, kw_only=True)
class SimulatedLists:
    """Clients that the server simulates: real lists of its documents, with clicks from the public click model.

    Attributes:
        model: global ranker by parameter.
        features: ``(B, Q, L, F)`` real features of the lists.
        mask: ``(B, Q, L)`` True for documents; padding comes last.
        learner: what the clients run.
        defenses: public defences of the clients.
    """

    model: Mapping[str, Tensor]
    features: Tensor
    mask: Tensor
    learner: RankingAlgorithm
    defenses: Sequence[Defense] = ()

    def simulate(self, scale: float, *, seed: int) -> tuple[RoundView, Tensor]:
        """A round with injected noise of a scale, and the clicks ``(B, Q L)``.

        Clicks, orders of the lists and draws of the noise depend on the seed only, so scales are compared on the same
        clients.
        """
        # Clicks of the public model, the lists in a random order, and the noise, all from one generator.
        generator = generator_for(seed, "made-up clients")
        steps = steps_for_law(self.learner.click_model, self.learner.grade_law, self.mask.shape[2])
        clicks = sample_patterns(cascade_log_law(steps, self.mask), generator)
        order = torch.rand(self.mask.shape[:2], generator=generator).argsort(1)
        noise = NoiseInjection(scale=scale)
        features = noise.features(self.model, self.features, self.mask, generator=generator)
        update = Update(self.learner.simulate_lists(self.model, features, self.mask, clicks, order))

        @functools.cache
        def generators(client: int) -> torch.Generator:
            return generator_for(seed, "made-up defence", client)

        for defense in self.defenses:
            update = defense.protect(update, generators)
        # The lists of a client as one row of items, with the number of the list that each is in.
        clients, lists, length = self.mask.shape
        is_shown = self.mask.flatten(1)
        list_number = torch.arange(lists).repeat_interleave(length).expand(clients, -1)
        releases: list[Release] = []
        for defense in self.defenses:
            releases.extend(defense.releases(tuple(self.model)))
        view = RoundView(
            round=0,
            pseudonyms=torch.arange(clients),
            example_counts=self.mask.any(2).sum(1),
            deltas=update.deltas,
            model=self.model,
            served=torch.arange(lists * length).expand(clients, -1).where(is_shown, -1),
            lists=list_number.where(is_shown, -1),
            features=features.flatten(1, 2),
            releases=tuple(releases),
            algorithm=self.learner,
            manipulation=noise.name,
        )
        return view, clicks.flatten(1)


def evolve_scale(
    objective: Callable[[float], float],
    *,
    lowest: float,
    highest: float,
    generations: int = 4,
    population: int = 5,
    seed: int = 0,
) -> float:
    """Mean of the last distribution of a CMA-ES search on a logarithmic axis; the best single draw would be biased.

    It maximises the objective between the lowest and the highest scale, over `generations` of `population` scales.

    Raises:
        ValueError: the range is empty.

    References:
        [Hansen01]; implemented by `cmaes`.
    """
    if not 0 < lowest < highest:
        raise ValueError(f"expected 0 < lowest < highest, got {lowest} and {highest}")
    bounds = np.log10([[lowest, highest]])
    # The first distribution is in the middle, and both ends are two standard deviations away.
    sigma = float(np.ptp(bounds)) / 4
    search = CMA(mean=bounds.mean(1), sigma=sigma, bounds=bounds, seed=seed, population_size=population)
    for _ in range(generations):
        points = [search.ask() for _ in range(population)]
        # The library minimises.
        search.tell([(point, -objective(10 ** float(point[0]))) for point in points])
    return min(max(10 ** float(search.mean[0]), lowest), highest)


def mean_auc(values: Tensor) -> float:
    """Mean AUC of the clients that have one; 0.5 if there are none."""
    mean = float(values.nanmean())
    if not math.isfinite(mean):
        return 0.5
    return mean
