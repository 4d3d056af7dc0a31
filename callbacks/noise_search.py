"""Search for the noise scale before the first round (RAIFLE, section IV.C), see `fedleak.server.noise_search`."""

import functools
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError
from fedleak.core.ranges import PositiveFloat, PositiveInt
from fedleak.core.seeding import generator_for
from fedleak.evaluation.registry import make_attack
from fedleak.evaluation.runner import infer
from fedleak.modules.learners.fpdgd import FPDGD
from fedleak.server.noise_injection import NoiseInjection
from fedleak.server.noise_search import SimulatedLists, evolve_scale, mean_auc
from fedleak.training.data import FederatedDataModule

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
        [Pham25], section IV.C.
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
            ((attack_name, arguments),) = attack.items()
            self.attack = make_attack(attack_name, arguments)
        else:
            self.attack = make_attack(attack, None)
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
            # Rank zero searches, and all others take its scale.
            best_scale = None
            if trainer.is_global_zero:
                best_scale = self._searched(pl_module, data)
            self.scale = trainer.strategy.broadcast(best_scale)
        assert self.scale is not None
        pl_module.manipulation = NoiseInjection(scale=self.scale)
        rounds = data.rounds or max(trainer.max_steps, 1)
        pl_module.settings_of_rounds = {number: {"scale": self.scale} for number in range(rounds)}

    def _searched(self, module: FPDGD, data: FederatedDataModule) -> float:
        clients = simulated_lists(module, data, self.clients)
        draws = module.seed + _OWN_DRAWS

        def auc(scale: float) -> float:
            view, clicks = clients.simulate(scale, seed=draws)
            estimate = infer(self.attack, view, generator_for(draws, self.attack.label(view)))
            if not isinstance(estimate, InteractionEstimate):
                raise InputError(
                    expected="an attack on interactions",
                    found=self.attack.name,
                    way_out="Use an attack of the family ranking for NoiseSearch.attack, e.g. ranking/raifle.",
                )
            return mean_auc(estimate.score(view, {"labels": clicks}).metrics["auc"])

        # Three digits are written in the manifest, so they are all that the server uses.
        return float(f"{self.search(auc, seed=module.seed):.3g}")

    def state_dict(self) -> dict[str, Any]:
        """Scale that was found."""
        return {"scale": self.scale}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the scale."""
        self.scale = state_dict["scale"]


def simulated_lists(module: FPDGD, data: FederatedDataModule, most: int) -> SimulatedLists:
    """Clients with the lists of at most `most` clients of the first round; the server lacks only their clicks."""
    cohort = data.cohort(0)
    model = {name: value.cpu() for name, value in module.public_parameters().items()}
    first_clients = cohort.select(torch.arange(min(most, len(cohort))))
    lists = module.interact(first_clients, model).examples
    return SimulatedLists(
        model=model,
        features=lists["features"],
        mask=lists["shown"],
        learner=module.algorithm,
        defenses=tuple(module.defenses),
    )
