"""IMIA: guess labels, train a shadow client with them, keep what fits (RAIFLE's baseline in table VI)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import InteractionEstimate
from protocol.progress import counted
from protocol.simulators import RecommenderSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ITEM_EMBEDDING, ServerView, ViewError
from ranges import OpenUnitInterval, PositiveInt


@dataclass(frozen=True, kw_only=True)
class IMIA(Attack):
    """Interaction membership inference by random guesses that a shadow client's update confirms.

    In each iteration every unresolved item gets a random label; a shadow client with a random user vector trains on
    them; of each guessed label, the items whose simulated delta lies nearest the received one keep it. What is never
    confirmed counts as not interacted with. It outputs hard labels. This follows RAIFLE's description (section V.A.4),
    because the published algorithm's text was not at hand: the share confirmed in an iteration is our reading of its
    confirmation threshold.

    Threat model: passive server, one round, knows the training algorithm and the share of positives.

    Args:
        selection: share of the unresolved items guessed to be positive.
        confirmation: quantile of the distances above which a guess is drawn again.
        iterations: shadow trainings per victim.

    References:
        Yuan, Yang, Nguyen, Cui, He and Yin, "Interaction-level membership inference attack against federated
        recommender systems", WWW 2023.
    """

    name = "imia"
    family = "recommendation"
    references = ("IMIA, Yuan et al. 2023",)
    cost = "`iterations` simulated trainings per victim"
    threat_model = ThreatModel(
        sees="the update of the item embeddings, the global model and which items were served",
        knows="the clients' training algorithm and the share of positives among served items",
        needs=("served", "learner:RecommenderSimulator", f"deltas:{ITEM_EMBEDDING}"),
    )

    selection: OpenUnitInterval = 0.2
    confirmation: OpenUnitInterval = 0.9
    iterations: PositiveInt = 10

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        mask = view.served_mask
        labels = torch.zeros(mask.shape)
        open_items = mask.clone()
        for _ in counted(range(self.iterations)):
            guess = (torch.rand(mask.shape, generator=generator) < self.selection).float()
            labels = torch.where(open_items, guess, labels)
            distance = self._distance(view, labels * mask, generator)
            for guessed in (labels == 0, labels == 1):
                open_items &= ~self._nearest(distance, open_items & guessed)
        labels = labels.masked_fill(open_items | ~mask, 0)
        return InteractionEstimate(scores=labels, decisions=labels > 0)

    def _distance(self, view: ServerView, labels: Tensor, generator: torch.Generator) -> Tensor:
        learner, served = view.require(RecommenderSimulator), view.served
        if served is None:
            raise ViewError("expected a view with served items")
        users = torch.randn(view.victims, learner.user_dim, generator=generator)
        shadow = learner.simulate(view.model, served, labels, users)[ITEM_EMBEDDING]
        distance: Tensor = torch.linalg.vector_norm(shadow - view.deltas[ITEM_EMBEDDING], dim=2)
        return distance

    def _nearest(self, distance: Tensor, open_items: Tensor) -> Tensor:
        ranked = distance.masked_fill(~open_items, torch.inf).argsort(dim=1).argsort(dim=1)
        confirmed = (open_items.sum(1, keepdim=True) * (1 - self.confirmation)).ceil()
        nearest: Tensor = (ranked < confirmed) & open_items
        return nearest
