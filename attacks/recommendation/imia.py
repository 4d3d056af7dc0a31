"""IMIA: guess labels, train a shadow client with them, keep what fits."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.client.recommendation import RecommenderAlgorithm
from fedleak.core.progress import report_progress
from fedleak.core.ranges import OpenUnitInterval
from fedleak.core.taxonomy import MEMBERSHIP
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import ITEM_EMBEDDING, RoundView


@dataclass(frozen=True, kw_only=True)
class IMIA(InteractionAttack):
    """Interaction-level membership inference by random guesses that a shadow client's update confirms.

    The share `selection` of a victim's items is guessed to be positive, and a shadow client with a random user vector
    trains on these labels. The items whose simulated delta is closest to the received one, `confirmed` of all items and
    one more, keep their label; the other labels are drawn again in the next pass, until all positives are confirmed.
    The output is hard labels. With the published share of 0.9, the first pass confirms nearly all of its random
    guesses; a client with fewer than ten items is guessed at random. A small share makes a stronger attack.

    Threat model: passive server, one round, knows the training algorithm and the share of positives.

    Args:
        selection: share of the items that is guessed to be positive.
        confirmed: share of the items that a pass confirms (published code: 0.9).

    References:
        [Yuan23]; the steps are those of its published code and of RAIFLE's port of it.

    Example:
        >>> import torch
        >>> from fedleak.attacks.recommendation import IMIA
        >>> from fedleak.attacks.recommendation.toy import toy
        >>> view, truth = toy()
        >>> estimate = IMIA()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.56
    """

    name = "imia"
    family = "recommendation"
    taxonomy = MEMBERSHIP
    references = ("Yuan23",)
    cost = "a simulated training per victim and pass, 1 / `confirmed` passes"
    threat_model = ThreatModel(
        sees="the update of the item embeddings, the global model and which items were served",
        knows="the clients' training algorithm and the share of positives among served items",
        needs=("served", RecommenderAlgorithm, f"deltas:{ITEM_EMBEDDING}"),
    )

    selection: OpenUnitInterval = 0.2
    confirmed: OpenUnitInterval = 0.9

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        learner = view.require(RecommenderAlgorithm)
        mask = view.served_mask
        users = torch.randn(view.victims, learner.user_dim, generator=generator)
        sizes = mask.sum(1, keepdim=True).double()
        positives = (self.selection * sizes).long()
        resolved_in_a_pass = (self.confirmed * sizes).long() + 1
        is_positive = torch.zeros_like(mask)
        unresolved = mask.clone()
        while bool(unresolved.any()):
            # Random items join the confirmed positives, up to the number of positives.
            missing = positives - is_positive.sum(1, keepdim=True)
            guessed = is_positive | _first(missing, torch.rand(mask.shape, generator=generator), unresolved)
            # A shadow client trains on this guess; labels of the items whose deltas fit best are kept, both kinds.
            shadow = learner.simulate(view.model, view.served_items, guessed.float(), users)[ITEM_EMBEDDING]
            distance = torch.linalg.vector_norm(shadow - view.deltas[ITEM_EMBEDDING], dim=2)
            resolved = _first(resolved_in_a_pass, distance, unresolved)
            is_positive |= resolved & guessed
            # With all positives confirmed, the other items are negative.
            unresolved &= ~resolved & (is_positive.sum(1, keepdim=True) < positives)
            report_progress(1 - float(unresolved.sum() / mask.sum()))
        return InteractionEstimate(scores=is_positive.float(), decisions=is_positive)


def _first(count: Tensor, keys: Tensor, among: Tensor) -> Tensor:
    """The ``count (V, 1)`` items of the mask ``among (V, R)`` with the smallest ``keys (V, R)``."""
    # Sorting twice gives the rank of each item.
    ranks = keys.masked_fill(~among, torch.inf).argsort(dim=1).argsort(dim=1)
    return among & (ranks < count)
