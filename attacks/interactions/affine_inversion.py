"""Clicks on items that were scored one by one, by inverting the update: ours."""

import torch
from torch import Tensor

from attacks.base import Attack, InteractionEstimate, ServerView, ThreatModel, ViewError
from attacks.interactions.box_solver import interior_point, ridge
from attacks.interactions.pointwise_descent import Items, Ranker, as_ranker, descend
from attacks.interactions.pointwise_map import bridged, click_map

_SIMULATED = 4
"""Simulated clients of each victim, whose norms say by how much clipping shrinks an update."""


class AffineInversion(Attack):
    """The clicks that a linear map takes to the update, without simulating the client again and again.

    For pointwise losses the update is affine in the clicks along the way on which the client trained (RAIFLE, theorem
    1). Without noise that way is known well enough from its ends, and the clicks are the least-squares solution
    between 0 and 1; under local DP the way is that of undecided clicks, and the estimate is the linear one of least
    error, every click being as likely as none.

    Threat model: the server knows what it served, and the algorithm; whether it is active is a matter of the features
    that it serves.

    Args:
        barriers: Newton steps of the interior-point method.
        iterations: conjugate gradients in each step.
        noisy_iterations: conjugate gradients under local DP.
    """

    name = "affine-inversion"
    threat_model = ThreatModel(
        sees="each client's update and the features of the items it was served",
        knows="the learning algorithm",
        needs=("served", "features", "learner", "deltas"),
    )

    def __init__(self, *, barriers: int = 7, iterations: int = 16, noisy_iterations: int = 30) -> None:
        if min(barriers, iterations, noisy_iterations) < 1:
            raise ValueError(
                f"expected barriers and iterations of at least 1, got {barriers}, {iterations} and {noisy_iterations}"
            )
        self.barriers = barriers
        self.iterations = iterations
        self.noisy_iterations = noisy_iterations

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        """See `Attack.run`."""
        items, sent, change = pointwise_update(view)
        noise = _noise(view)
        if noise:
            scores = self._under_noise(view, items, sent, change, noise, generator)
        else:
            scores = self._exact(view, items, sent, change)
        return InteractionEstimate(scores=scores, decisions=(scores > 0.5) & view.served_mask)

    def _exact(self, view: ServerView, items: Items, sent: Ranker, change: Ranker) -> Tensor:
        learner = view.pointwise_learner()
        rate, steps = learner.learning_rate, learner.full_batch_steps
        way = descend(sent, items, _undecided(view), learning_rate=rate, steps=steps)
        linear = click_map(bridged(way, change), items)
        received = linear.offset.plus(change, len(items) / (rate * steps))
        return interior_point(linear, received, barriers=self.barriers, iterations=self.iterations)

    def _under_noise(
        self, view: ServerView, items: Items, sent: Ranker, change: Ranker, noise: float, generator: torch.Generator
    ) -> Tensor:
        learner = view.pointwise_learner()
        rate, steps = learner.learning_rate, learner.full_batch_steps
        shrinking = _shrinking(view, items, sent, generator)
        way = descend(sent, items, _undecided(view), learning_rate=rate, steps=steps)
        linear = click_map(way[:-1], items)
        unit = len(items) / (rate * steps)
        received = linear.offset.plus(change.times(1 / shrinking), unit)
        return ridge(linear, received, noise * unit / shrinking, iterations=self.noisy_iterations)


def pointwise_update(view: ServerView) -> tuple[Items, Ranker, Ranker]:
    """What the clients of a view were served, the rankers that they were sent, and what they changed of them.

    Raises:
        ViewError: clients were served different numbers of items, or some parameters were not recorded.
    """
    if view.features is None or not bool(view.served_mask.all()):
        raise ViewError("expected the features of as many items for every client, got none or padding")
    models = view.sent_models()
    missing = [name for name in models if name not in view.deltas]
    if missing:
        raise ViewError(f"expected the deltas of {', '.join(missing)}, got {', '.join(view.deltas)}; record them")
    return Items(view.features), as_ranker(models), as_ranker({name: view.deltas[name] for name in models})


def _noise(view: ServerView) -> float:
    return max(view.noise_scale(name) for name in view.deltas)


def _undecided(view: ServerView) -> Tensor:
    assert view.features is not None
    return torch.full(view.served_mask.shape, 0.5).to(view.features)


def _shrinking(view: ServerView, items: Items, sent: Ranker, generator: torch.Generator) -> Tensor:
    """``(V,)`` what clipping leaves of an update, on average over simulated clients."""
    assert view.features is not None
    learner = view.pointwise_learner()
    clip = view.clip(next(iter(view.deltas)))
    if clip is None:
        return torch.ones(view.victims).to(view.features)
    norms = []
    for _ in range(_SIMULATED):
        clicks = torch.rand(view.served_mask.shape, generator=generator).round().to(view.features)
        way = descend(sent, items, clicks, learning_rate=learner.learning_rate, steps=learner.full_batch_steps)
        norms.append(way[-1].plus(sent, -1.0).squares().sqrt())
    return (clip / torch.stack(norms)).clamp(max=1).mean(0)
