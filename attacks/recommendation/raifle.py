"""RAIFLE's gradient matching for federated recommendation."""

from dataclasses import dataclass
from typing import Literal

import torch

from attacks.base import Attack
from attacks.estimates import InteractionEstimate
from protocol.errors import InputError, ViewError
from protocol.ranges import PositiveInt
from protocol.threat_model import ThreatModel
from protocol.view import ITEM_EMBEDDING, ServerView


@dataclass(frozen=True, kw_only=True)
class Raifle(Attack):
    """RAIFLE without manipulation: gradient matching of the interactions' simulated update to the received one.

    Threat model: passive server, one round; knows the training algorithm and the served items, not the user vector.

    Args:
        user: ``fixed`` user vector as in the published code, or optimised with the interactions (``joint``) as in the
            paper.
        match: deltas that are compared: ``items`` as in the published code, ``items+model`` as in the paper (the
            model's deltas must be recorded).
        solver: ``lbfgs`` as published for recommendation, or ``adam``.
        max_iter: iterations of the solver (published: 1000).
        accelerator: Lightning accelerator.
        devices: number of devices.

    References:
        Pham, Kulkarni and Houmansadr, "RAIFLE: Reconstruction Attacks on Interaction-based Federated Learning with
        Adversarial Data Manipulation", NDSS 2025, arXiv:2310.19163, Algorithm 2 and section VI.A.
    """

    name = "raifle"
    family = "recommendation"
    references = ("RAIFLE, Algorithm 2",)
    cost = "`max_iter` simulated trainings per victim, with gradients"
    audited_victims = 8
    threat_model = ThreatModel(
        sees="the update of the item embeddings, the global model and which items were served",
        knows="the clients' training algorithm",
        needs=("served", "learner:RecommenderSimulator", f"deltas:{ITEM_EMBEDDING}"),
    )

    user: Literal["fixed", "joint"] = "fixed"
    match: Literal["items", "items+model"] = "items"
    solver: Literal["lbfgs", "adam"] = "lbfgs"
    max_iter: PositiveInt = 100
    accelerator: str = "auto"
    devices: PositiveInt = 1

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        from modules.attackers.gradient_matching import GradientMatching
        from modules.attackers.trainer import fit_quietly

        module = GradientMatching(
            view, generator=generator, max_iter=self.max_iter, user=self.user, match=self.match, solver=self.solver
        )
        try:
            fit_quietly(module, accelerator=self.accelerator, devices=self.devices, max_steps=module.trainer_steps)
        except InputError as error:  # the clients' local training cannot be differentiated
            raise ViewError(str(error)) from None
        scores = module.best.to(view.served_mask.device)
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & view.served_mask)
