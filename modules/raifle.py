"""RAIFLE's own attack on federated recommendation, for comparison."""

import logging

import torch
from lightning import Trainer

from attacks.base import ITEM_EMBEDDING, Attack, InteractionEstimate, ServerView, ThreatModel
from modules.gradient_matching import GradientMatching, UserVector


class Raifle(Attack):
    """Reconstruction by gradient matching without manipulation (RAIFLE, Algorithm 2, section VI.A).

    Threat model: passive server, one round; knows the training algorithm and the served items, not the user vector.

    Args:
        user: ``fixed`` as in the published code, ``joint`` as in the paper.
        max_iter: L-BFGS iterations (published: 1000).
        accelerator: where to run, as Lightning names it.
    """

    name = "raifle"
    threat_model = ThreatModel(
        sees="the update of the item embeddings, the global model and which items were served",
        knows="the clients' training algorithm",
        needs=("served", "learner", f"deltas:{ITEM_EMBEDDING}"),
    )

    def __init__(self, *, user: UserVector = "fixed", max_iter: int = 100, accelerator: str = "auto") -> None:
        if max_iter < 1:
            raise ValueError(f"expected max_iter of at least 1, got {max_iter}")
        self.user: UserVector = user
        self.max_iter = max_iter
        self.accelerator = accelerator

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        """See `Attack.run`."""
        module = GradientMatching(view, generator=generator, user=self.user, max_iter=self.max_iter)
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        trainer = Trainer(
            max_steps=1,
            accelerator=self.accelerator,
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module)
        scores = module.best
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & view.served_mask)
