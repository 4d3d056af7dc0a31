"""IMIA: guess labels, train a shadow client with them, keep what fits."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import InteractionEstimate
from protocol.progress import counted
from protocol.ranges import OpenUnitInterval, PositiveInt
from protocol.simulators import RecommenderSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ITEM_EMBEDDING, ServerView


@dataclass(frozen=True, kw_only=True)
class IMIA(Attack):
    """Interaction-level membership inference by random guesses that a shadow client's update confirms.

    In each iteration, every unresolved item gets a random label and a shadow client with a random user vector trains on
    the labels. For each label, the items whose simulated delta is closest to the received one keep it. Items that are
    never confirmed count as not interacted with. The output is hard labels. This follows RAIFLE's description (section
    V.A.4); the share confirmed in an iteration is our interpretation of the confirmation threshold.

    Threat model: passive server, one round, knows the training algorithm and the share of positives.

    Args:
        selection: share of the unresolved items that is guessed to be positive.
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
                asked = open_items & guessed
                ranks = distance.masked_fill(~asked, torch.inf).argsort(dim=1).argsort(dim=1)
                confirmed = (asked.sum(1, keepdim=True) * (1 - self.confirmation)).ceil()
                open_items &= ~((ranks < confirmed) & asked)
        labels = labels.masked_fill(open_items | ~mask, 0)
        return InteractionEstimate(scores=labels, decisions=labels > 0)

    def _distance(self, view: ServerView, labels: Tensor, generator: torch.Generator) -> Tensor:
        learner = view.require(RecommenderSimulator)
        users = torch.randn(view.victims, learner.user_dim, generator=generator)
        shadow = learner.simulate(view.model, view.served_items, labels, users)[ITEM_EMBEDDING]
        distance: Tensor = torch.linalg.vector_norm(shadow - view.deltas[ITEM_EMBEDDING], dim=2)
        return distance
