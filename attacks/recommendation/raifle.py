"""RAIFLE's gradient matching for federated recommendation."""

from dataclasses import dataclass
from typing import Literal

import torch

from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.client.recommendation import RecommenderAlgorithm
from fedleak.core.errors import InputError, ViewError
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


@dataclass(frozen=True, kw_only=True)
class Raifle(InteractionAttack):
    """RAIFLE without manipulation: gradient matching of the interactions' simulated update to the received one.

    Where clients clip their updates, the published code matches an unclipped simulation to what they sent. The
    corrected attack clips its simulation, as the clients do. The fixed user vector is drawn from U(0, 1), as published,
    although users' are from N(0, 1).

    Threat model: passive server, one round; knows the training algorithm, the public parameters of the defence and the
    served items, not the user vector.

    Args:
        code: ``corrected`` or ``as-published-code``.
        user: ``fixed`` user vector as in the published code, or optimised with the interactions (``joint``) as in the
            paper.
        match: deltas that are compared: ``items`` as in the published code, ``items+model`` as in the paper, or
            ``model`` where the items' never leave the clients.
        solver: ``lbfgs`` as published for recommendation, for each victim by itself, or ``adam``.
        max_iter: largest number of iterations of the solver (published: 1000); L-BFGS stops earlier, at its published
            tolerances.
        accelerator: Lightning accelerator.

    References:
        [Pham25], Algorithm 2 and section VI.A.

    Example:
        >>> import torch
        >>> from fedleak.attacks.recommendation import Raifle
        >>> from fedleak.attacks.recommendation.toy import toy
        >>> view, truth = toy()
        >>> estimate = Raifle(max_iter=8)(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["auc"].mean()) > 0.9
        True
    """

    name = "raifle"
    family = "recommendation"
    references = ("Pham25, Algorithm 2",)
    cost = "`max_iter` simulated trainings per victim, with gradients"
    audited_victims = 8
    slow = True
    threat_model = ThreatModel(
        sees="the update of the item embeddings or of the network, the global model and which items were served",
        knows="the clients' training algorithm and the defence's parameters",
        needs=("served", RecommenderAlgorithm, "deltas"),
    )

    code: Literal["corrected", "as-published-code"] = "corrected"
    user: Literal["fixed", "joint"] = "fixed"
    match: Literal["items", "items+model", "model"] = "items"
    solver: Literal["lbfgs", "adam"] = "lbfgs"
    max_iter: PositiveInt = 1000
    accelerator: str = "auto"
    devices: PositiveInt = 1

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        from fedleak.modules.attackers.gradient_matching import InteractionMatching
        from fedleak.modules.attackers.trainer import fit_quietly

        module = InteractionMatching(
            view,
            generator=generator,
            max_iter=self.max_iter,
            user=self.user,
            match=self.match,
            solver=self.solver,
            code=self.code,
        )
        try:
            fit_quietly(module, accelerator=self.accelerator, devices=self.devices, max_epochs=1)
        except InputError as error:  # the clients' local training cannot be differentiated
            raise ViewError(str(error)) from None
        # Interactions are optimised as logits, so that 0 is a probability of one half.
        scores = module.best.to(view.served_mask.device)
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & view.served_mask)
