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
"""Smallest mean squared norm of the columns that is divided by."""
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
        This project; the map is that of [Pham25], theorem 1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.images import AffineInversion
        >>> from fedleak.attacks.images.toy import toy
        >>> view, truth = toy()
        >>> estimate = AffineInversion()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        1.0
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
        # The map is that of change * R / (lr T): the mean over the T steps of sum_i J_i^T (I_i - p_i), of the R items.
        unit = len(update.items) / (update.rate * update.steps)
        path = update.path(torch.full(view.served_mask.shape, 0.5))
        noise = max(view.noise_scale(name) for name in view.deltas)
        if noise:
            # The end of the path is not known, so the path stays that of clicks of 0.5; clipping is undone in the mean.
            clip_factor = _mean_clip_factor(view, update, generator)
            linear = click_map(path[:-1], update.items)
            received = linear.offset.plus(update.change.times(1 / clip_factor), unit)
            scores = ridge(linear, received, noise * unit / clip_factor, iterations=self.noisy_iterations)
        else:
            linear = click_map(bridged(path, update.change), update.items)
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

    def path(self, clicks: Tensor) -> list[Ranker]:
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
    sent = as_ranker(view.sent_models())
    learner = view.require(VoteAlgorithm)
    return PointwiseUpdate(
        items=Items(view.features, biases=sent.biases),
        sent=sent,
        change=as_ranker(view.model_deltas()),
        rate=learner.learning_rate,
        steps=learner.full_batch_steps,
    )


def _mean_clip_factor(view: RoundView, update: PointwiseUpdate, generator: torch.Generator) -> Tensor:
    """``(V,)`` mean factor by which clipping shrinks the updates of simulated clients."""
    name = next(iter(view.deltas))
    if view.clip(name) is None:
        return torch.ones(view.victims).to(update.items.features)
    squares = []
    for _ in range(_SIMULATED):
        clicks = torch.rand(view.served_mask.shape, generator=generator).round()
        last_ranker = update.path(clicks)[-1]
        squares.append(last_ranker.plus(update.sent, -1.0).squares())
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
        of_weight = (self.items.forward(change.weight) * self.slopes).sum(-1)
        if self.hidden is None or change.output is None:
            return of_weight
        return of_weight + (self.hidden * change.output[:, None]).sum(-1)

    def squares(self) -> Tensor:
        """``(V, R)`` squared norms of the columns: the effect of an item's click on the update."""
        of_weight = self.items.norms * self.slopes.square().sum(-1)
        if self.hidden is None:
            return of_weight
        return of_weight + self.hidden.square().sum(-1)


def click_map(path: Sequence[Ranker], items: Items) -> ClickMap:
    """The map along a path, given by the rankers before each step."""
    slopes = torch.zeros(())
    hidden = torch.zeros(())
    offset: Ranker | None = None
    for ranker in path:
        step_outputs = outputs(ranker, items)
        slopes = slopes + step_outputs.slopes / len(path)
        if step_outputs.hidden is not None:
            hidden = hidden + step_outputs.hidden / len(path)
        # The probabilities pull the ranker as clicks do, with the other sign: J^T (I - p) = J^T I - J^T p.
        step = pull(step_outputs, items, step_outputs.probabilities / len(path))
        offset = step if offset is None else offset.plus(step)
    assert offset is not None
    if offset.output is None:
        return ClickMap(items, slopes, None, offset)
    return ClickMap(items, slopes, hidden, offset)


def bridged(path: Sequence[Ranker], change: Ranker) -> list[Ranker]:
    """The rankers before each step of a path that ends where the client's did, after its update `change`.

    `path` has the rankers before each step and after the last, for other clicks than the client's.
    """
    gap = path[0].plus(change).plus(path[-1], -1.0)
    steps = len(path) - 1
    # The gap grows evenly: step t of T starts t / T of it away from the path.
    return [ranker.plus(gap, step / steps) for step, ranker in enumerate(path[:-1])]


def conjugate_gradients(product: Callable[[Tensor], Tensor], target: Tensor, *, iterations: int) -> Tensor:
    """Solves symmetric positive definite systems with right-hand sides ``target (V, R)`` by conjugate gradients.

    The matrices are given by their `product` with vectors ``(V, R)``. A small number of iterations acts as
    regularisation.

    References:
        [Hestenes52].
    """
    tiny = torch.finfo(target.dtype).tiny  # a system that is solved exactly has a residual of zero
    solution = torch.zeros_like(target)
    residual = target.clone()
    direction = target.clone()
    residual_square = residual.square().sum(1)
    for _ in range(iterations):
        image = product(direction)
        # The step that minimises the error along the direction: r.r / d.A d.
        length = residual_square / (direction * image).sum(1).clamp(min=tiny)
        solution = solution + length[:, None] * direction
        residual = residual - length[:, None] * image
        # The next direction is conjugate to all before it: r' + (r'.r' / r.r) d.
        square_before = residual_square
        residual_square = residual.square().sum(1)
        ratio = residual_square / square_before.clamp(min=tiny)
        direction = residual + ratio[:, None] * direction
    return solution


def ridge(linear: ClickMap, received: Ranker, noise: Tensor, *, iterations: int) -> Tensor:
    """``(V, R)`` linear estimate of least error for equally likely clicks and noise of standard deviations ``(V,)``."""
    # Clicks of 0 or 1 have the variance 1/4 around 1/2, so the penalty is the noise's variance over it: (2 sigma)^2.
    half = torch.full(linear.slopes.shape[:2], 0.5).to(linear.slopes)
    penalty = (2 * noise).square()[:, None]
    # Columns are scaled to equal norms (Jacobi preconditioning), which takes fewer iterations.
    scale = (linear.squares() + penalty).rsqrt()
    residual = received.plus(linear.apply(half), -1.0)
    target = scale * linear.transpose(residual)
    return half + scale * conjugate_gradients(_system(linear, scale, penalty), target, iterations=iterations)


def interior_point(linear: ClickMap, received: Ranker, *, barriers: int, iterations: int) -> Tensor:
    """``(V, R)`` least-squares estimate in [0, 1] by Newton's method with a decreasing logarithmic barrier.

    An item without effect on the received map of the clicks gets 0.5. The barrier of the Newton steps decreases from
    0.1 to 0.0005 of the mean squared column; each step has `iterations` conjugate gradient steps.
    """
    squares = linear.squares()
    # A ranker whose units are all inactive sends nothing; avoid a mean of zero.
    mean_square = squares.mean(1, keepdim=True).clamp(min=_NOTHING)
    clicks = torch.full_like(squares, 0.5)
    residual = received.plus(linear.apply(clicks), -1.0)
    for weight in torch.logspace(-1, -3.3, barriers).tolist():
        # The barrier is -b (log I + log (1 - I)): minus its gradient and its second derivative.
        barrier = weight * mean_square
        inward = 1 / clicks - 1 / (1 - clicks)
        curvature = barrier * (clicks.square().reciprocal() + (1 - clicks).square().reciprocal())
        # Newton step: (A^T A + D) step = A^T residual + b inward, with columns scaled to about equal norms.
        scale = (squares.clamp(min=_BLIND * mean_square) + curvature).rsqrt()
        target = scale * (linear.transpose(residual) + barrier * inward)
        step = scale * conjugate_gradients(_system(linear, scale, curvature), target, iterations=iterations)
        lowest = (1 - _TO_THE_WALL) * clicks
        highest = clicks + _TO_THE_WALL * (1 - clicks)
        clicks = (clicks + step).clamp(lowest, highest).clamp(_WALL, 1 - _WALL)
        residual = received.plus(linear.apply(clicks), -1.0)
    return clicks


def _system(linear: ClickMap, scale: Tensor, diagonal: Tensor) -> Callable[[Tensor], Tensor]:
    """The product with ``S (A^T A + D) S``, S and D diagonal."""
    return lambda u: scale * (linear.transpose(linear.apply(scale * u)) + diagonal * scale * u)
