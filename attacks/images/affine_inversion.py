"""Inversion of the updates of clients that score items one by one, by the linear map from clicks to updates.

With the mean cross-entropy, T steps change the parameters by ``(lr / R) sum_t J_t^T (I - p_t)``, where J_t are the
gradients of the scores and p_t the probabilities before step t. Given the path of the training, the update is affine in
the clicks I (RAIFLE, theorem 1 and appendix A for T = 1). The path depends only slightly on the clicks: its two ends
are known, and the gap at the end of a path from other clicks is distributed evenly over it.

The map has thousands of rows (parameters) and columns (items), so it is used only through products with it and its
transpose, for all clients at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.client.pointwise_descent import Items, Outputs, Ranker, VoteAlgorithm, as_ranker, descend, outputs, pull
from fedleak.core.errors import ViewError
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_BLIND = 1e-6
"""Share of the mean column norm below which an item is considered not to affect the update."""
_NOTHING = 1e-12
_WALL = 1e-5
"""Smallest distance of a click to a bound that float32 can represent."""
_TO_THE_WALL = 0.9
"""Largest part of the distance to a bound that one step may take."""

_SIMULATED = 4
"""Simulated clients per victim for the factor by which clipping shrinks an update."""


@dataclass(frozen=True, kw_only=True)
class AffineInversion(InteractionAttack):
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
    name = next(iter(view.deltas))
    if view.clip(name) is None:
        return torch.ones(view.victims).to(update.items.features)
    squares = []
    for _ in range(_SIMULATED):
        end = update.way(torch.rand(view.served_mask.shape, generator=generator).round())[-1]
        squares.append(end.plus(update.sent, -1.0).squares())
    return view.clip_factors_of(name, {name: torch.stack(squares)}).mean(0)


@dataclass(frozen=True)
class ClickMap:
    """A linear map from clicks ``(V, R)`` to changes of rankers; see `click_map`.

    ``slopes (V, R, H)`` and ``hidden (V, R, H)`` are the means of `Outputs` over the path, `offset` the map of the
    probabilities.
    """

    items: Items
    slopes: Tensor
    hidden: Tensor | None
    offset: Ranker

    def apply(self, clicks: Tensor) -> Ranker:
        return pull(Outputs(clicks, self.slopes, self.hidden), self.items, clicks)

    def transpose(self, change: Ranker) -> Tensor:
        """``(V, R)`` product of the transposed map and a change."""
        back = (self.items.forward(change.weight) * self.slopes).sum(-1)
        if self.hidden is None or change.output is None:
            return back
        return back + (self.hidden * change.output[:, None]).sum(-1)

    def squares(self) -> Tensor:
        """``(V, R)`` squared norms of the columns: the effect of an item's click on the update."""
        own = self.items.norms * self.slopes.square().sum(-1)
        return own if self.hidden is None else own + self.hidden.square().sum(-1)


def click_map(way: Sequence[Ranker], items: Items) -> ClickMap:
    """The map along a path, given by the rankers before each step."""
    slopes, hidden, expected = torch.zeros(()), torch.zeros(()), None
    for ranker in way:
        found = outputs(ranker, items)
        slopes = slopes + found.slopes / len(way)
        hidden = hidden if found.hidden is None else hidden + found.hidden / len(way)
        step = pull(found, items, found.probabilities / len(way))
        expected = step if expected is None else expected.plus(step)
    assert expected is not None
    return ClickMap(items, slopes, None if expected.output is None else hidden, expected)


def bridged(way: Sequence[Ranker], change: Ranker) -> list[Ranker]:
    """The rankers before each step of a path that ends where the client's did, after its update `change`.

    `way` has the rankers before each step and after the last, for other clicks than the client's.
    """
    gap = way[0].plus(change).plus(way[-1], -1.0)
    steps = len(way) - 1
    return [ranker.plus(gap, step / steps) for step, ranker in enumerate(way[:-1])]


def conjugate_gradients(product: Callable[[Tensor], Tensor], right: Tensor, *, iterations: int) -> Tensor:
    """Solves symmetric positive definite systems with right-hand sides ``(V, R)`` by conjugate gradients.

    The matrices are given by their `product` with vectors ``(V, R)``. A small number of iterations acts as
    regularisation.

    References:
        Hestenes and Stiefel, "Methods of Conjugate Gradients for Solving Linear Systems", 1952.
    """
    found = torch.zeros_like(right)
    rest, direction = right.clone(), right.clone()
    square = rest.square().sum(1)
    for _ in range(iterations):
        image = product(direction)
        length = square / (direction * image).sum(1).clamp(min=torch.finfo(right.dtype).tiny)
        found = found + length[:, None] * direction
        rest = rest - length[:, None] * image
        before, square = square, rest.square().sum(1)
        direction = rest + (square / before.clamp(min=torch.finfo(right.dtype).tiny))[:, None] * direction
    return found


def ridge(linear: ClickMap, received: Ranker, noise: Tensor, *, iterations: int) -> Tensor:
    """``(V, R)`` linear estimate of least error for equally likely clicks and noise of standard deviations ``(V,)``."""
    half = torch.full(linear.slopes.shape[:2], 0.5).to(linear.slopes)
    penalty = (2 * noise).square()[:, None]
    scale = (linear.squares() + penalty).rsqrt()
    right = scale * linear.transpose(received.plus(linear.apply(half), -1.0))
    return half + scale * conjugate_gradients(_system(linear, scale, penalty), right, iterations=iterations)


def interior_point(linear: ClickMap, received: Ranker, *, barriers: int, iterations: int) -> Tensor:
    """``(V, R)`` least-squares estimate in [0, 1] by Newton's method with a decreasing logarithmic barrier.

    An item without effect on the received map of the clicks gets 0.5. The barrier of the Newton steps decreases from
    0.1 to 0.0005 of the mean squared column; each step has `iterations` conjugate gradient steps.
    """
    squares = linear.squares()
    # A ranker whose units are all inactive sends nothing; avoid a mean of zero.
    mean = squares.mean(1, keepdim=True).clamp(min=_NOTHING)
    clicks = torch.full_like(squares, 0.5)
    residual = received.plus(linear.apply(clicks), -1.0)
    for weight in torch.logspace(-1, -3.3, barriers).tolist():
        barrier = weight * mean
        inward = 1 / clicks - 1 / (1 - clicks)
        bend = barrier * (clicks.square().reciprocal() + (1 - clicks).square().reciprocal())
        scale = (squares.clamp(min=_BLIND * mean) + bend).rsqrt()
        right = scale * (linear.transpose(residual) + barrier * inward)
        step = scale * conjugate_gradients(_system(linear, scale, bend), right, iterations=iterations)
        lowest, highest = (1 - _TO_THE_WALL) * clicks, clicks + _TO_THE_WALL * (1 - clicks)
        clicks = (clicks + step).clamp(lowest, highest).clamp(_WALL, 1 - _WALL)
        residual = received.plus(linear.apply(clicks), -1.0)
    return clicks


def _system(linear: ClickMap, scale: Tensor, diagonal: Tensor) -> Callable[[Tensor], Tensor]:
    """The product with ``S (A^T A + D) S``, S and D diagonal."""
    return lambda u: scale * (linear.transpose(linear.apply(scale * u)) + diagonal * scale * u)
