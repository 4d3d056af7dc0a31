"""Gradient matching for a ranker of images (RAIFLE, Algorithm 1 and section V.C.3), all victims of a view at once."""

import torch
from torch import Tensor

from attacks.base import Attack, InteractionEstimate, ServerView, ThreatModel
from attacks.interactions.affine_inversion import pointwise_update
from attacks.interactions.pointwise_descent import descend

_LEARNING_RATE = 0.1
"""Of the attack's Adam, as published."""


class PointwiseMatching(Attack):
    """RAIFLE where items are scored one by one: relaxed clicks whose simulated update lies nearest the received one.

    One logit per item, U(-1, 1) at first; Adam; the loss is the mean squared difference of the updates, both divided
    by the learning rate. The best point of each victim is kept, where the published code returns the last.

    Threat model: ``raifle-none`` where the served images are real, ``fgsm`` and ``raifle`` where they are manipulated.
    The server extracts the features as its clients do and knows the algorithm.

    Args:
        max_iter: steps of Adam (published: 300).
    """

    name = "raifle-none"
    threat_model = ThreatModel(
        sees="each client's update and the images it was served",
        knows="the learning algorithm and the extractor of the features",
        needs=("served", "features", "learner", "deltas"),
    )

    def __init__(self, *, max_iter: int = 300) -> None:
        if max_iter < 1:
            raise ValueError(f"expected max_iter of at least 1, got {max_iter}")
        self.max_iter = max_iter

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        """See `Attack.run`."""
        items, sent, change = pointwise_update(view)
        learner = view.pointwise_learner()
        rate, steps = learner.learning_rate, learner.full_batch_steps
        received = sent.plus(change)
        start = torch.rand(view.served_mask.shape, generator=generator) * 2 - 1
        logits = start.to(items.features).requires_grad_()
        best, lowest = logits.detach().clone(), torch.full((view.victims,), torch.inf).to(items.features)
        optimizer = torch.optim.Adam([logits], lr=_LEARNING_RATE)
        for _ in range(self.max_iter):
            with torch.enable_grad():
                way = descend(sent, items, torch.sigmoid(logits), learning_rate=rate, steps=steps)
                losses: Tensor = way[-1].plus(received, -1.0).squares() / (rate**2 * sent.numbers)
                optimizer.zero_grad()
                losses.sum().backward()  # type: ignore[no-untyped-call]
            better = losses.detach() < lowest
            lowest = torch.where(better, losses.detach(), lowest)
            best = torch.where(better[:, None], logits.detach(), best)
            optimizer.step()
        return InteractionEstimate(scores=best, decisions=(best > 0) & view.served_mask)


class FGSMMatching(PointwiseMatching):
    """The same reconstruction from images that the fast gradient sign method perturbed (RAIFLE, section V.C.4)."""

    name = "fgsm"
    threat_model = ThreatModel(
        sees="each client's update and the perturbed images it sent itself",
        knows="the learning algorithm and the extractor of the features",
        active=True,
        needs=PointwiseMatching.threat_model.needs,
    )


class ManipulatedPointwiseMatching(PointwiseMatching):
    """RAIFLE with indirect manipulation: the same reconstruction from images whose features the server chose."""

    name = "raifle"
    threat_model = ThreatModel(
        sees="each client's update and the manipulated images it sent itself",
        knows="the learning algorithm and the extractor of the features",
        active=True,
        needs=PointwiseMatching.threat_model.needs,
    )
