"""Inversion of the updates of clients that score items one by one, by linear algebra."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.images.click_map import bridged, click_map, interior_point, ridge
from attacks.interactions.estimates import InteractionEstimate
from client.pointwise_descent import Items, Ranker, VoteAlgorithm, as_ranker, descend
from protocol.errors import ViewError
from protocol.ranges import PositiveInt
from protocol.threat_model import ThreatModel
from protocol.view import RoundView

_SIMULATED = 4
"""Simulated clients per victim for the factor by which clipping shrinks an update."""


@dataclass(frozen=True, kw_only=True)
class AffineInversion(Attack):
    """Least-squares inversion of the affine map from clicks to updates, without repeated simulation.

    For pointwise losses the update is affine in the clicks, given the path of the local training. Without noise, the
    path is determined well by its ends, and the clicks are the least-squares solution between 0 and 1. Under local DP,
    the path is that of clicks of 0.5, and the estimate is the linear one with the least error for equally likely
    clicks.

    Threat model: the server knows the served items and the algorithm; it may serve real or manipulated features.

    Args:
        barriers: Newton steps of the interior-point method.
        iterations: conjugate gradient steps in each of them.
        noisy_iterations: conjugate gradient steps under local DP.

    References:
        This project; the map is that of Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163, theorem
        1.
    """

    name = "affine-inversion"
    family = "images"
    estimates = InteractionEstimate
    exact = True
    threat_model = ThreatModel(
        sees="each client's update and the features of the items it was served",
        knows="the learning algorithm",
        needs=("served", "features", VoteAlgorithm, "deltas"),
    )

    barriers: PositiveInt = 7
    iterations: PositiveInt = 16
    noisy_iterations: PositiveInt = 30

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        update = pointwise_update(view)
        unit = len(update.items) / (update.rate * update.steps)
        way = update.way(torch.full(view.served_mask.shape, 0.5))
        noise = max(view.noise_scale(name) for name in view.deltas)
        if noise:
            shrinking = _shrinking(view, update, generator)
            linear = click_map(way[:-1], update.items)
            received = linear.offset.plus(update.change.times(1 / shrinking), unit)
            scores = ridge(linear, received, noise * unit / shrinking, iterations=self.noisy_iterations)
        else:
            linear = click_map(bridged(way, update.change), update.items)
            received = linear.offset.plus(update.change, unit)
            scores = interior_point(linear, received, barriers=self.barriers, iterations=self.iterations)
        return InteractionEstimate(scores=scores, decisions=(scores > 0.5) & view.served_mask)


@dataclass(frozen=True)
class PointwiseUpdate:
    """The items and rankers that a view's clients received (`sent`), their updates, and how they train."""

    items: Items
    sent: Ranker
    change: Ranker
    rate: float
    steps: int

    def way(self, clicks: Tensor) -> list[Ranker]:
        """The rankers before each step and after the last, for ``clicks (V, R)``."""
        clicks = clicks.to(self.items.features)
        return descend(self.sent, self.items, clicks, learning_rate=self.rate, steps=self.steps)


def pointwise_update(view: RoundView) -> PointwiseUpdate:
    """The updates of clients that score items one by one.

    Raises:
        ViewError: clients were served different numbers of items, or some parameters were not recorded.
    """
    if view.features is None or not bool(view.served_mask.all()):
        raise ViewError("expected features of the same number of items for every client, got none or padding")
    sent, learner = as_ranker(view.sent_models()), view.require(VoteAlgorithm)
    change = as_ranker(view.model_deltas())
    items = Items(view.features, biases=sent.biases)
    return PointwiseUpdate(items, sent, change, learner.learning_rate, learner.full_batch_steps)


def _shrinking(view: RoundView, update: PointwiseUpdate, generator: torch.Generator) -> Tensor:
    """``(V,)`` mean factor by which clipping shrinks the updates of simulated clients."""
    clip = view.clip(next(iter(view.deltas)))
    if clip is None:
        return torch.ones(view.victims).to(update.items.features)
    norms = []
    for _ in range(_SIMULATED):
        end = update.way(torch.rand(view.served_mask.shape, generator=generator).round())[-1]
        norms.append(end.plus(update.sent, -1.0).squares().sqrt())
    return (clip / torch.stack(norms)).clamp(max=1).mean(0)
