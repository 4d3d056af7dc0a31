"""The search for the noise that is best read (RAIFLE, section IV.C), on clients that the server makes up itself."""

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
from attacks.registry import built
from datamodules.base import FederatedDataModule
from defenses.base import Defense, Update
from evaluation.runner import infer
from modules.learners.fpdgd import FPDGD
from modules.learners.registry import learner_from
from protocol.click_models import cascade_log_law, sample_patterns, steps_for_law
from protocol.errors import InputError
from protocol.seeding import generator_for
from protocol.simulators import RankingSimulator
from protocol.view import ServerView
from ranges import PositiveFloat, PositiveInt

_OWN_DRAWS = 1_000_000
"""Added to the training's seed: the made-up clients click and defend themselves by other draws than the real ones."""


class NoiseSearch(Callback):
    """Before the first round the server searches the scale of the noise that it injects, by CMA-ES.

    It makes up clients with the lists that the first round's clients would be shown, and clicks of its own, and attacks
    them at every scale that is drawn. `NoiseInjection` of the scale found becomes the training's manipulation; the
    recording's manifest names it in ``round_settings``, so that it is a column of every result.

    Args:
        attack: by whose mean AUC the server judges a scale; a name or class path, or a mapping of it to arguments, such
            as ``{ranking/raifle: {max_iter: 60}}``.
        clients: made-up clients, at most those of the first round.
        lowest: smallest scale.
        highest: largest scale.
        generations: how often CMA-ES draws scales.
        population: scales in a generation.
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
            self.attack = built(name, arguments)
        else:
            self.attack = built(attack)
        self.clients = clients
        self.search = functools.partial(
            evolve_scale, lowest=lowest, highest=highest, generations=generations, population=population
        )
        self.scale: float | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Searches, unless the training goes on from a checkpoint, and sets the manipulation."""
        data: FederatedDataModule = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(pl_module, FPDGD):
            raise InputError(
                expected="a learner whose server sends features, FPDGD, for NoiseSearch",
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
        clients = MadeUpClients.of(module, data, self.clients)
        draws = module.seed + _OWN_DRAWS

        def auc(scale: float) -> float:
            view, clicks = clients.sent(scale, seed=draws)
            estimate = infer(self.attack, view, generator_for(draws, self.attack.label(view)))
            if not isinstance(estimate, InteractionEstimate):
                raise InputError(
                    expected="an attack on interactions",
                    found=self.attack.name,
                    way_out="Give NoiseSearch.attack one of the family ranking, e.g. ranking/raifle.",
                )
            return mean_auc(estimate.score(view, {"labels": clicks}).metrics["auc"])

        return float(f"{self.search(auc, seed=module.seed):.3g}")

    def state_dict(self) -> dict[str, Any]:
        """What was found."""
        return {"scale": self.scale}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes it back."""
        self.scale = state_dict["scale"]


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

    @classmethod
    def of(cls, module: FPDGD, data: FederatedDataModule, most: int) -> "MadeUpClients":
        """Lists as the server would rank the documents of the first round; of what they hold only the clicks are not.

        Args:
            module: the clients' learner, not yet trained.
            data: the documents.
            most: clients.
        """
        cohort = data.cohort(0)
        model = {name: value.cpu() for name, value in module.public_parameters().items()}
        lists = module.interact(cohort.select(torch.arange(min(most, len(cohort)))), model).examples
        learner = learner_from(module.learner_description())
        assert isinstance(learner, RankingSimulator)
        return cls(
            model=model,
            features=lists["features"],
            mask=lists["shown"],
            learner=learner,
            defenses=tuple(module.defenses),
        )

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
