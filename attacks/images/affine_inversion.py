"""Inversion of the update of clients that score items one by one, by linear algebra."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import InteractionEstimate
from attacks.images.click_map import bridged, click_map, interior_point, ridge
from protocol.pointwise_descent import Items, Ranker, as_ranker, descend
from protocol.simulators import PointwiseSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ServerView, ViewError
from ranges import PositiveInt

_SIMULATED = 4
"""Simulated clients of each victim, whose norms say by how much clipping shrinks an update."""


@dataclass(frozen=True, kw_only=True)
class AffineInversion(Attack):
    """Least-squares inversion: the clicks that a linear map takes to the update, without repeated simulation.

    For pointwise losses the update is affine in the clicks along the way on which the client trained (RAIFLE, theorem
    1). Without noise that way is known well enough from its ends, and the clicks are the least-squares solution
    between 0 and 1; under local DP the way is that of undecided clicks, and the estimate is the linear one of least
    error, every click being as likely as none.

    Threat model: the server knows what it served, and the algorithm; it may serve real or manipulated features.

    Args:
        barriers: Newton steps of the interior-point method.
        iterations: conjugate gradients in each step.
        noisy_iterations: conjugate gradients under local DP.
    """

    name = "affine-inversion"
    family = "images"
    exact = True
    threat_model = ThreatModel(
        sees="each client's update and the features of the items it was served",
        knows="the learning algorithm",
        needs=("served", "features", "learner:PointwiseSimulator", "deltas"),
    )

    barriers: PositiveInt = 7
    iterations: PositiveInt = 16
    noisy_iterations: PositiveInt = 30

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
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
    """What a view's clients were served and sent, what they changed, and how they train.

    Attributes:
        items: what was served.
        sent: the rankers that the clients were sent.
        change: what they changed of them.
        rate: local learning rate.
        steps: steps, each over all items.
    """

    items: Items
    sent: Ranker
    change: Ranker
    rate: float
    steps: int

    def way(self, clicks: Tensor) -> list[Ranker]:
        """The rankers before each step and after the last, of clients with ``clicks (V, R)``."""
        clicks = clicks.to(self.items.features)
        return descend(self.sent, self.items, clicks, learning_rate=self.rate, steps=self.steps)


def pointwise_update(view: ServerView) -> PointwiseUpdate:
    """The update of clients that score items one by one.

    Raises:
        ViewError: clients were served different numbers of items, or some parameters were not recorded.
    """
    if view.features is None or not bool(view.served_mask.all()):
        raise ViewError("expected the features of as many items for every client, got none or padding")
    models, learner = view.sent_models(), view.require(PointwiseSimulator)
    missing = [name for name in models if name not in view.deltas]
    if missing:
        raise ViewError(f"expected the deltas of {', '.join(missing)}, got {', '.join(view.deltas)}; record them")
    change = as_ranker({name: view.deltas[name] for name in models})
    return PointwiseUpdate(
        Items(view.features), as_ranker(models), change, learner.learning_rate, learner.full_batch_steps
    )


def _shrinking(view: ServerView, update: PointwiseUpdate, generator: torch.Generator) -> Tensor:
    """``(V,)`` what clipping leaves of an update, on average over simulated clients."""
    clip = view.clip(next(iter(view.deltas)))
    if clip is None:
        return torch.ones(view.victims).to(update.items.features)
    norms = []
    for _ in range(_SIMULATED):
        end = update.way(torch.rand(view.served_mask.shape, generator=generator).round())[-1]
        norms.append(end.plus(update.sent, -1.0).squares().sqrt())
    return (clip / torch.stack(norms)).clamp(max=1).mean(0)
