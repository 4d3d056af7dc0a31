"""RAIFLE's own attack on federated recommendation, for comparison."""

from typing import get_args

import torch

from attacks.base import ITEM_EMBEDDING, Attack, InteractionEstimate, ServerView, ThreatModel
from modules.attack_trainer import fit_quietly
from modules.gradient_matching import GradientMatching, Match, Solver, UserVector


class Raifle(Attack):
    """Reconstruction by gradient matching without manipulation (RAIFLE, Algorithm 2, section VI.A).

    Threat model: passive server, one round; knows the training algorithm and the served items, not the user vector.

    Args:
        user: ``fixed`` as in the published code, ``joint`` as in the paper.
        match: ``items`` as in the published code, ``items+model`` as in the paper (the model's deltas must be
            recorded).
        solver: ``lbfgs`` as published for recommendation, or ``adam``.
        max_iter: iterations of the solver (published: 1000).
        accelerator: where to run, as Lightning names it.

    Raises:
        ValueError: an argument is not one of these.
    """

    name = "raifle"
    threat_model = ThreatModel(
        sees="the update of the item embeddings, the global model and which items were served",
        knows="the clients' training algorithm",
        needs=("served", "learner", f"deltas:{ITEM_EMBEDDING}"),
    )

    def __init__(
        self,
        *,
        user: UserVector = "fixed",
        match: Match = "items",
        solver: Solver = "lbfgs",
        max_iter: int = 100,
        accelerator: str = "auto",
    ) -> None:
        for name, value, allowed in (("user", user, UserVector), ("match", match, Match), ("solver", solver, Solver)):
            if value not in get_args(allowed):
                raise ValueError(f"expected {name} among {', '.join(get_args(allowed))}, got {value!r}")
        if max_iter < 1:
            raise ValueError(f"expected max_iter of at least 1, got {max_iter}")
        self.user: UserVector = user
        self.match: Match = match
        self.solver: Solver = solver
        self.max_iter = max_iter
        self.accelerator = accelerator

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        """See `Attack.run`."""
        module = GradientMatching(
            view, generator=generator, max_iter=self.max_iter, user=self.user, match=self.match, solver=self.solver
        )
        fit_quietly(module, accelerator=self.accelerator, max_steps=module.trainer_steps)
        scores = module.best.to(view.served_mask.device)
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & view.served_mask)
