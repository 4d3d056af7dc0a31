"""Search for the noise scale that leaks most (RAIFLE, section IV.C), on clients that the server simulates."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from cmaes import CMA
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import InteractionEstimate
from attacks.manipulation.direct import NoiseInjection
from attacks.registry import make_attack
from client.click_models import cascade_log_law, sample_patterns, steps_for_law
from client.ranking import RankingAlgorithm
from datamodules.base import FederatedDataModule
from defenses.base import Defense, Update
from evaluation.runner import infer
from modules.learners.fpdgd import FPDGD
from protocol.errors import InputError
from protocol.ranges import PositiveFloat, PositiveInt
from protocol.seeding import generator_for
from protocol.view import RoundView

_OWN_DRAWS = 1_000_000
"""Added to the training's seed: simulated clients have other draws than the real ones."""


class NoiseSearch(Callback):
    """Searches the scale of the injected noise by CMA-ES before the first round.

    The server simulates clients with the lists of the first round and clicks of its own, and attacks them at every
    scale. `NoiseInjection` with the best scale becomes the manipulation of the training; the recording's manifest lists
    the scale in ``round_settings``, so it is a column of every result.

    Args:
        attack: attack whose mean AUC is the objective; a name or class path, or a mapping of it to arguments, such as
            ``{ranking/raifle: {max_iter: 60}}``.
        clients: number of simulated clients, at most the number of clients in the first round.
        lowest: smallest scale.
        highest: largest scale.
        generations: number of generations of CMA-ES.
        population: number of scales per generation.

    References:
        Pham, Kulkarni and Houmansadr, "RAIFLE: Reconstruction Attacks on Interaction-based Federated Learning with
        Adversarial Data Manipulation", NDSS 2025, arXiv:2310.19163, section IV.C.
    """

    def __init__(
        self,
        *,
        attack: dict[str, dict[str, Any]] | Attack | str = "ranking/raifle",
        clients: PositiveInt = 30,
        lowest: PositiveFloat = 0.001,
        highest: PositiveFloat = 1.0,
        generations: PositiveInt = 4,
        population: PositiveInt = 5,
    ) -> None:
        if isinstance(attack, dict):
            ((name, arguments),) = attack.items()
            self.attack = make_attack(name, arguments)
        else:
            self.attack = make_attack(attack)
        self.clients = clients
        self.search = functools.partial(
            evolve_scale, lowest=lowest, highest=highest, generations=generations, population=population
        )
        self.scale: float | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sets the manipulation, after a search unless the training resumes from a checkpoint."""
        data: FederatedDataModule = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(pl_module, FPDGD):
            raise InputError(
                expected="a learner with served features, FPDGD, for NoiseSearch",
                found=type(pl_module).__name__,
                way_out="Remove NoiseSearch from the callbacks.",
            )
        pl_module.manipulation = None
        if self.scale is None:
            found = self._searched(pl_module, data) if trainer.is_global_zero else None
            self.scale = trainer.strategy.broadcast(found)
        assert self.scale is not None
        pl_module.manipulation = NoiseInjection(scale=self.scale)
        rounds = data.rounds or max(trainer.max_steps, 1)
        pl_module.settings_of_rounds = {number: {"scale": self.scale} for number in range(rounds)}

    def _searched(self, module: FPDGD, data: FederatedDataModule) -> float:
        clients = SimulatedLists.of(module, data, self.clients)
        draws = module.seed + _OWN_DRAWS

        def auc(scale: float) -> float:
            view, clicks = clients.sent(scale, seed=draws)
            estimate = infer(self.attack, view, generator_for(draws, self.attack.label(view)))
            if not isinstance(estimate, InteractionEstimate):
                raise InputError(
                    expected="an attack on interactions",
                    found=self.attack.name,
                    way_out="Use an attack of the family ranking for NoiseSearch.attack, e.g. ranking/raifle.",
                )
            return mean_auc(estimate.score(view, {"labels": clicks}).metrics["auc"])

        return float(f"{self.search(auc, seed=module.seed):.3g}")

    def state_dict(self) -> dict[str, Any]:
        """Scale that was found."""
        return {"scale": self.scale}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the scale."""
        self.scale = state_dict["scale"]


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

    @classmethod
    def of(cls, module: FPDGD, data: FederatedDataModule, most: int) -> "SimulatedLists":
        """Clients with the lists of at most `most` clients of the first round; the server lacks only their clicks."""
        cohort = data.cohort(0)
        model = {name: value.cpu() for name, value in module.public_parameters().items()}
        lists = module.interact(cohort.select(torch.arange(min(most, len(cohort)))), model).examples
        learner = module.algorithm
        assert isinstance(learner, RankingAlgorithm)
        features, mask, defenses = lists["features"], lists["shown"], tuple(module.defenses)
        return cls(model=model, features=features, mask=mask, learner=learner, defenses=defenses)

    def sent(self, scale: float, *, seed: int) -> tuple[RoundView, Tensor]:
        """Server view with injected noise of a scale, and the clicks ``(B, Q L)``.

        Clicks, orders of the lists and draws of the noise depend on the seed only, so scales are compared on the same
        clients.
        """
        draws = generator_for(seed, "made-up clients")
        steps = steps_for_law(self.learner.click_model, self.learner.grade_law, self.mask.shape[2])
        clicks = sample_patterns(cascade_log_law(steps, self.mask), draws)
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

    def _view(self, features: Tensor, update: Update, manipulation: str) -> RoundView:
        clients, lists, length = self.mask.shape
        shown = self.mask.flatten(1)
        number = torch.arange(lists).repeat_interleave(length).expand(clients, -1)
        return RoundView(
            round=0,
            pseudonyms=torch.arange(clients),
            example_counts=self.mask.any(2).sum(1),
            deltas=update.deltas,
            model=self.model,
            served=torch.arange(lists * length).expand(clients, -1).where(shown, -1),
            lists=number.where(shown, -1),
            features=features.flatten(1, 2),
            releases=tuple(r for d in self.defenses for r in d.releases(tuple(self.model))),
            algorithm=self.learner,
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
    """Mean of the last distribution of a CMA-ES search on a logarithmic axis; the best single draw would be biased.

    Args:
        objective: function of a scale to maximise.
        lowest: smallest scale.
        highest: largest scale.
        generations: number of generations.
        population: number of scales per generation.
        seed: seed of the draws.

    Raises:
        ValueError: the range is empty.

    References:
        N. Hansen and A. Ostermeier, "Completely Derandomized Self-Adaptation in Evolution Strategies", Evolutionary
        Computation, 2001; implemented by `cmaes`.
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
    """Mean AUC of the clients that have one; 0.5 if there are none."""
    found = float(values.nanmean())
    return found if math.isfinite(found) else 0.5
