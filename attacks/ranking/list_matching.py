"""RAIFLE's gradient matching for federated online learning to rank."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import InteractionEstimate
from attacks.ranking.lists import Lists, ranked_lists
from modules.attackers.batched_lbfgs import batched_lbfgs
from protocol.ranges import PositiveInt
from protocol.simulators import RankingSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ServerView


@dataclass(frozen=True, kw_only=True)
class ListMatching(Attack):
    """RAIFLE on ranked lists, gradient matching: relaxed clicks whose simulated update is closest to the received one.

    One logit per document, initialised from U(-1, 1); the loss is the mean squared difference of the updates, divided
    by the learning rate. The order in which the client worked through its lists is unknown; the simulation uses the
    served order. Results are called ``raifle`` if the server manipulated the features, ``raifle-none`` otherwise.

    Threat model: passive server, or an active one that sends features of its choice; it knows the served documents,
    their displayed order and the algorithm.

    Args:
        max_iter: iterations of L-BFGS (published: up to 1000).
        starts: random starts, of which the best is kept (published: 1).

    References:
        Pham, Kulkarni and Houmansadr, "RAIFLE: Reconstruction Attacks on Interaction-based Federated Learning with
        Adversarial Data Manipulation", NDSS 2025, arXiv:2310.19163, Algorithm 1.
    """

    name = "raifle"
    aliases = ("raifle-none",)
    family = "ranking"
    references = ("RAIFLE, Algorithm 1",)
    cost = "`max_iter` simulated trainings per victim and start, with gradients"
    threat_model = ThreatModel(
        sees="each client's update and the documents it was served, with their features",
        knows="the learning algorithm and the displayed order",
        needs=("served", "lists", "features", "learner:RankingSimulator", "deltas"),
    )

    max_iter: PositiveInt = 100
    starts: PositiveInt = 1

    def label(self, view: ServerView) -> str:
        return "raifle" if view.manipulation else "raifle-none"

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
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


class _Loss:
    """The objective of `batched_lbfgs` on logits ``(V, Q L)``."""

    def __init__(self, view: ServerView, lists: Lists) -> None:
        self.learner, self.lists, self.model = view.require(RankingSimulator), lists, view.model
        self.received = {name: value / self.learner.learning_rate for name, value in view.deltas.items()}
        self.numbers = sum(value[0].numel() for value in self.received.values())

    def __call__(self, point: Tensor) -> tuple[Tensor, Tensor]:
        mask = self.lists.mask
        with torch.enable_grad():
            logits = point.detach().requires_grad_()
            clicks = torch.sigmoid(logits).reshape(mask.shape) * mask
            simulated = self.learner.simulate_lists(self.model, self.lists.features, mask, clicks)
            gaps = [
                (simulated[name] / self.learner.learning_rate - value).flatten(1)
                for name, value in self.received.items()
            ]
            losses = torch.cat(gaps, dim=1).square().sum(1) / self.numbers
            (gradient,) = torch.autograd.grad(losses.sum(), logits)
        return losses.detach(), gradient
