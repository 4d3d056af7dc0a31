"""Exact class counts from the last layer: whole numbers of examples behind the change of its bias."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.composition.bias_equations import (
    CountSolution,
    LastLayer,
    solve_with_images,
    solve_without_images,
)
from fedleak.attacks.composition.counts import CountAttack, CountEstimate, count_estimate, nearest_counts
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.attacks.composition.step_scale import step_scale
from fedleak.client.auxiliary_images import IMAGES, LABELS, Auxiliary, auxiliary
from fedleak.client.last_layer import output_layer
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_PRIOR = 0.1
"""Standard deviation of a share about equal shares, before the update is seen."""
_FLAT = 1e3
"""The same for hardly any prior."""


@dataclass(frozen=True, kw_only=True)
class OutputCounts(CountAttack):
    """Class counts from the bias of the last layer, as the whole numbers nearest to a least-squares solution.

    A step of size s on the mean cross-entropy of N examples changes the bias of class c by ``s (n_c / N - p_c)``, p_c
    being the mean predicted probability. What is unknown is p:

    * With auxiliary images: ``p = P' n / N``, where row k of P is their mean prediction in class k, so n solves ``N b /
      s = (I - P') n``. The covariance of a prediction about the mean of its class, times N, plus what the sample of
      auxiliary images adds, weighs the equations.
    * Without: ``p = softmax(W h + b)`` of the mean feature h. A ratio of weight and bias, ``dW_c / db_c``, is a mean
      feature with weights ``p_ic - y_ic``: that of all examples for an absent class. Their mean, weighted by ``(N p_c -
      n_c)^2 / n_c``, the inverse of their variances, is h; counts and h improve each other in a few passes.

    Without images, distances from whole numbers and negative counts show the error. Shares have a weak normal prior
    about equal ones. The nearest whole numbers with sum N follow by a search from the rounded solution. A single step
    has the p of the global model; of several ones, it is the mean of those of the global model and of the client's, and
    predictions allow for a place anywhere between both.
    Weight decay is subtracted. Where the learner is unknown, or a clip binds, so is s: it is the one that puts all
    counts nearest to whole numbers or, if none stands out, the smallest without a negative count. Where clients add
    noise, the posterior mean of the shares is the estimate, and with a clip the expected factor is that of simulated
    clients. Optimizers that scale parameters, and batches of different weight, break the whole numbers.

    Threat model: passive server, one round; knows the class of each row and the example counts that clients report, and
    if it has them, the learning rate and a few images of each class.

    Args:
        images: whether auxiliary images are used where there are any.
        auxiliary_per_class: number of auxiliary images used per class, None for all.

    Variants:
        alone: the server has no images, and counts are inferred from the last layer alone.

    References:
        This project. The equations of the bias are those of [Ma23], and of [Ramakrishna22].

    Example:
        >>> import torch
        >>> from fedleak.attacks.composition import OutputCounts
        >>> from fedleak.attacks.composition.toy import toy
        >>> view, truth = toy()
        >>> estimate = OutputCounts()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.0
    """

    name = "output-counts"
    with_prior = "rank"
    threat_model = ThreatModel(
        sees="the update of the last layer, the global model and how many examples the client reports",
        knows="the class of each row; uses the learning rate and images of every class if it has them",
        needs=("deltas", "model"),
    )
    variants: ClassVar[Variants] = {
        "alone": {
            "images": False,
            "threat_model": dataclasses.replace(
                threat_model, knows="the class of each row; uses the learning rate if it has it"
            ),
        }
    }

    images: bool = True
    auxiliary_per_class: PositiveInt | None = None

    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        mean_step = _mean_step(view)
        sizes = view.example_counts.clamp(min=1)
        solution = self._solve(view, _PRIOR, mean_step, generator)
        deviation = solution.shown_deviation()
        if bool(mean_step.any()):
            # The mean step may be anywhere between the global model and the client's own. The deviation of a uniform
            # position is the distance from the middle to the end, over the root of 3.
            at_end = self._solve(view, _PRIOR, 2 * mean_step, generator)
            deviation = (deviation.square() + (at_end.counts - solution.counts).square() / 3).sqrt()
        if view.noise_scale(f"{output_layer(view)}.bias"):
            # Noise hides whole numbers: the estimate is the posterior mean of the shares.
            shares = solution.counts.clamp(min=0)
            shares = shares / shares.sum(1, keepdim=True)
            estimate = count_estimate(largest_remainders(shares, sizes), deviation, shares=shares)
        else:
            counts = nearest_counts(solution.precision, solution.target, solution.counts, sizes)
            estimate = count_estimate(counts, deviation)
        return dataclasses.replace(estimate, assumes=_assumed(view))

    def linear_shares(self, view: RoundView, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Shares ``(V, K)`` by least squares alone, without prior, bounds or whole numbers, and their deviation.

        They are without bias where the predictions are known, so that they can be averaged and subtracted.
        """
        solution = self._solve(view, _FLAT, _mean_step(view), generator)
        sizes = view.example_counts.clamp(min=1)[:, None]
        return solution.counts / sizes, solution.deviation / sizes

    def _solve(self, view: RoundView, prior: float, mean_step: Tensor, generator: torch.Generator) -> CountSolution:
        layer = LastLayer.of(view, mean_step)
        sizes = view.example_counts.clamp(min=1)
        image_pool = self._image_pool(view, layer)
        noise = view.noise_scale(f"{output_layer(view)}.bias")
        scale = step_scale(view, image_pool, noisy=bool(noise), generator=generator)
        if image_pool is None:
            solution = solve_without_images(layer, sizes, scale, noise, prior)
        else:
            solution = solve_with_images(view, layer, image_pool, mean_step, sizes, scale, noise, prior)
        return solution._replace(fitted=scale.isnan())

    def _image_pool(self, view: RoundView, layer: LastLayer) -> Auxiliary | None:
        """The auxiliary images, or None if there are none or they are not to be used."""
        has_images = {IMAGES, LABELS} <= view.auxiliary.keys() and isinstance(view.algorithm, ClassifierAlgorithm)
        if not self.images or not has_images:
            return None
        return auxiliary(view, layer.bias.shape[1], self.auxiliary_per_class)


def class_counts(view: RoundView, *, generator: torch.Generator) -> Tensor:
    """``(V, K)`` int64 inferred number of each client's examples of each class, with sums `example_counts`.

    Raises:
        ViewError: the clients' steps are known not to be those of SGD.
    """
    if _assumed(view):
        raise ViewError("expected clients with SGD, got an optimizer that scales parameters or clips examples")
    estimate: CompositionEstimate = OutputCounts().estimate(view, generator=generator)
    assert isinstance(estimate, CountEstimate)
    return estimate.counts


def _mean_step(view: RoundView) -> Tensor:
    """``(V,)`` where the mean step is taken on the line from the global model (0) to the client's own (1).

    A single step is made at the global model. Where clients add noise, their own models are not known.
    """
    half = torch.full((view.victims,), 0.5, dtype=torch.float64)
    if view.noise_scale(f"{output_layer(view)}.bias"):
        return torch.zeros_like(half)
    learner = view.algorithm
    if not isinstance(learner, ClassifierAlgorithm):
        return half
    return half * (learner.steps(view.example_counts) > 1)


def _assumed(view: RoundView) -> str:
    """What is assumed of the clients' steps against what is known of them; empty for nothing."""
    learner = view.algorithm
    if not isinstance(learner, ClassifierAlgorithm) or learner.step_sums(view.example_counts) is not None:
        return ""
    clipped = ""
    if learner.local.example_clip is not None:
        clipped = " with clipped examples"
    elif learner.local.max_grad_norm is not None:
        clipped = " with clipped gradients"
    return f"SGD with steps of an unknown size; the clients train with {learner.local.optimizer}{clipped}"
