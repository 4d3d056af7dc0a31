"""Baseline without the update: items that people with the same taste like, learned from the server's public data."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.interactions.baselines import two_means
from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.core.errors import ViewError
from fedleak.core.ranges import OpenUnitInterval, PositiveFloat
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import PUBLIC_INTERACTIONS, RoundView

_MOST_ITEMS = 20_000
"""Largest catalogue whose matrix of pairs is made, of 3 GB."""


@dataclass(frozen=True, kw_only=True)
class TasteNeighbours(InteractionAttack):
    """Items that the other items served to a client predict, by a linear model of other people's interactions.

    Among the items that were served, the liked ones predict one another, because people who like the one like the
    other. Which ones they are is not known, so each served item counts by its probability, first of its popularity
    among the other people, then of the first prediction.

    Threat model: a server with interactions of people who are no clients, which does not use the victim's update.

    Args:
        regularization: penalty on the squared weights of the linear model, in people.
        positive_share: share of the served items that is expected to be positive (RAIFLE serves four negatives per
            positive).

    Raises:
        ViewError: the catalogue has more than 20,000 items, or the public interactions are no pairs.

    References:
        [Steck19] (the linear model); this project (its use on the served items).
    """

    name = "taste-neighbours"
    family = "interactions"
    baseline = True
    is_prior = True
    threat_model = ThreatModel(
        sees="which items were served",
        knows="what people who are no clients interacted with",
        needs=("served", f"auxiliary:{PUBLIC_INTERACTIONS}"),
    )

    regularization: PositiveFloat = 200.0
    positive_share: OpenUnitInterval = 0.2

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        mask, served = view.served_mask, view.served_items.clamp(min=0)
        public = view.auxiliary[PUBLIC_INTERACTIONS].long()
        if public.dim() != 2 or public.shape[1] != 2 or not len(public) or int(public.min()) < 0:
            raise ViewError(f"expected pairs (P, 2) of a person and an item, got {tuple(public.shape)}")
        items = max(int(public[:, 1].max()), int(served.max())) + 1
        if items > _MOST_ITEMS:
            raise ViewError(f"expected a catalogue of at most {_MOST_ITEMS} items, got {items}")
        weights, counts = _linear_model(public, items, self.regularization)
        # First probabilities: the odds of the expected share, times an item's popularity over the mean one.
        popularity = (counts + 0.5) / (counts.mean() + 0.5)
        odds = popularity * self.positive_share / (1 - self.positive_share)
        probabilities = (odds / (1 + odds))[served] * mask
        scores = torch.zeros_like(probabilities)
        for _ in range(2):  # from popularity, then from the first prediction
            profile = torch.zeros(len(served), items, dtype=torch.float64)
            profile.scatter_add_(1, served, probabilities)
            scores = (profile @ weights).gather(1, served)
            probabilities = _probabilities(scores, mask, self.positive_share)
        return InteractionEstimate(scores=scores, decisions=two_means(scores, mask))


def _linear_model(public: Tensor, items: int, regularization: float) -> tuple[Tensor, Tensor]:
    """``(I, I)`` weights by which items predict others, none itself; and ``(I,)`` how many people each item has."""
    _, people = torch.unique(public[:, 0], return_inverse=True)
    interactions = torch.zeros(int(people.max()) + 1, items, dtype=torch.float64)
    interactions[people, public[:, 1]] = 1
    # EASE: with P = (X'X + l I)^-1, the weights without a diagonal that predict X best are -P_ij / P_jj.
    penalty = regularization * torch.eye(items, dtype=torch.float64)
    inverse = torch.linalg.inv(interactions.T @ interactions + penalty)
    weights = -inverse / inverse.diagonal()
    weights.fill_diagonal_(0)
    return weights, interactions.sum(0)


def _probabilities(scores: Tensor, mask: Tensor, share: float) -> Tensor:
    """``(V, R)`` a logistic function of the scores that is one half where the expected share begins."""
    real = scores.masked_fill(~mask, torch.nan)
    threshold = real.nanquantile(1 - share, dim=1, keepdim=True)
    mean = real.nanmean(1, keepdim=True)
    spread = (real - mean).square().nanmean(1, keepdim=True).sqrt().clamp(min=1e-12)
    return (2 * (scores - threshold) / spread).sigmoid() * mask
