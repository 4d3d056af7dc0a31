"""Gradient matching for federated online learning to rank (RAIFLE, Algorithm 1), all victims of a view at once."""

import torch
from torch import Tensor

from attacks.base import Attack, InteractionEstimate, ServerView, ThreatModel, ViewError
from attacks.interactions.lists import Lists, ranked_lists
from modules.batched_lbfgs import batched_lbfgs


class ListMatching(Attack):
    """RAIFLE on ranked lists: relaxed clicks whose simulated update lies nearest the received one.

    One logit per document, U(-1, 1) at first; the loss is the mean squared difference of the updates, both divided by
    the learning rate. The order in which the client worked through its lists is unknown: the simulation takes them as
    they come.

    Threat model: ``raifle-none`` where the served features are real, a passive server; ``raifle`` where they are
    manipulated, an active one. Either knows what it served, in which order it was displayed, and the algorithm.

    Args:
        max_iter: iterations of L-BFGS (published: up to 1000, which it never needs).
        starts: random starts, of which the best is kept (published: 1).
    """

    name = "raifle-none"
    threat_model = ThreatModel(
        sees="each client's update and the documents it was served",
        knows="the learning algorithm and the displayed order",
        needs=("served", "lists", "features", "learner", "deltas"),
    )

    def __init__(self, *, max_iter: int = 100, starts: int = 1) -> None:
        if max_iter < 1 or starts < 1:
            raise ValueError(f"expected max_iter and starts of at least 1, got {max_iter} and {starts}")
        self.max_iter = max_iter
        self.starts = starts

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        """See `Attack.run`."""
        lists = ranked_lists(view)
        best = torch.zeros(lists.mask.shape)
        lowest = torch.full((view.victims,), torch.inf)
        for _ in range(self.starts):
            start = torch.rand(lists.mask.shape, generator=generator) * 2 - 1
            point, loss = batched_lbfgs(_Loss(view, lists), start.flatten(1), max_iter=self.max_iter)
            better = loss < lowest
            best = torch.where(better[:, None, None], point.reshape(best.shape), best)
            lowest = torch.where(better, loss, lowest)
        scores = lists.of_items(best, view.served_mask).float()
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & view.served_mask)


class ManipulatedListMatching(ListMatching):
    """RAIFLE with adversarial data manipulation: the same reconstruction from features that the server chose."""

    name = "raifle"
    threat_model = ThreatModel(
        sees="each client's update and the features it sent itself",
        knows="the learning algorithm and the displayed order",
        active=True,
        needs=ListMatching.threat_model.needs,
    )


class _Loss:
    """The objective of `batched_lbfgs`: points are logits ``(V, Q L)``."""

    def __init__(self, view: ServerView, lists: Lists) -> None:
        if lists.features is None:
            raise ViewError("expected the features that were served, got a view without them")
        self.learner = view.ranker()
        self.mask, self.features = lists.mask, lists.features
        self.model = dict(view.model)
        self.received = {name: value / self.learner.learning_rate for name, value in view.deltas.items()}
        self.numbers = sum(value[0].numel() for value in self.received.values())

    def __call__(self, point: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            logits = point.detach().requires_grad_()
            clicks = torch.sigmoid(logits).reshape(self.mask.shape) * self.mask
            simulated = self.learner.simulate_lists(self.model, self.features, self.mask, clicks)
            gaps = [
                (simulated[name] / self.learner.learning_rate - value).flatten(1)
                for name, value in self.received.items()
            ]
            losses = torch.cat(gaps, dim=1).square().sum(1) / self.numbers
            (gradient,) = torch.autograd.grad(losses.sum(), logits)
        return losses.detach(), gradient
