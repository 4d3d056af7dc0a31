"""IMIA: guess labels, train a shadow client with them, keep what looks right (baseline of RAIFLE, table VI)."""

import torch
from torch import Tensor

from attacks.base import ITEM_EMBEDDING, Attack, InteractionEstimate, ServerView, ThreatModel, ViewError
from attacks.progress import counted


class IMIA(Attack):
    """Interaction membership inference after Yuan et al. (2023), as far as RAIFLE (section V.A.4) describes it.

    In each iteration every unresolved item gets a random label; a shadow client with a random user vector trains on
    them; of each guessed label, the items whose simulated delta lies nearest the received one keep it. What is never
    confirmed counts as not interacted with. It outputs hard labels. The published algorithm's text was not at hand:
    the share confirmed in an iteration is our reading of its confirmation threshold.

    Threat model: passive server, one round, knows the training algorithm and the share of positives.

    Args:
        selection: share of the unresolved items guessed to be positive.
        confirmation: quantile of the distances above which a guess is drawn again.
        iterations: shadow trainings per victim.
    """

    name = "imia"
    threat_model = ThreatModel(
        sees="the update of the item embeddings, the global model and which items were served",
        knows="the clients' training algorithm and the share of positives among served items",
        needs=("served", "learner", f"deltas:{ITEM_EMBEDDING}"),
    )

    def __init__(self, *, selection: float = 0.2, confirmation: float = 0.9, iterations: int = 10) -> None:
        for name, value in (("selection", selection), ("confirmation", confirmation)):
            if not 0 < value < 1:
                raise ValueError(f"expected {name} in (0, 1), got {value}")
        if iterations < 1:
            raise ValueError(f"expected iterations of at least 1, got {iterations}")
        self.selection = selection
        self.confirmation = confirmation
        self.iterations = iterations

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        """See `Attack.run`."""
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
        learner, served = view.recommender(), view.served
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
