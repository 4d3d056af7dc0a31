"""Exact class counts from the last layer: whole numbers of examples behind the change of its bias."""

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedleak.attacks.composition.base import trained_models
from fedleak.attacks.composition.counts import (
    CountAttack,
    CountEstimate,
    count_estimate,
    nearest_counts,
    shown_deviation,
)
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.attacks.composition.label_inference import class_labels, class_means, class_outputs
from fedleak.client.auxiliary_images import IMAGES, LABELS, Auxiliary, auxiliary
from fedleak.client.last_layer import layer_change, output_layer
from fedleak.client.network import ClassifierAlgorithm
from fedleak.client.simulated_clients import draw_examples, mean_clip_factor, random_compositions
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_PASSES = 6
"""Passes in which the mean feature and the counts improve each other."""
_SCALES = 400
"""Scales tried where the step size is unknown, up to `_LARGEST` times the smallest possible."""
_LARGEST = 8.0
_CLEAR = 0.25
"""Share of the usual distance from whole numbers below which a scale is taken for the true one."""
_PRIOR = 0.1
"""Standard deviation of a share about equal shares, before the update is seen."""
_FLAT = 1e3
"""The same for hardly any prior."""
_SIMULATED = 8
"""Simulated clients that give the expected factor of a clip."""
_TINY = 1e-30
_BY_CHANCE = 0.01
"""Probability of counts so near to whole numbers, with the best of the tried scales, that rules out chance."""
_FEWEST = 0.3
"""Number of examples for which a class without any is taken, in weights by the inverse of it."""


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
        This project. The equations of the bias are those of Ma et al., "Instance-wise Batch Label Restoration via
        Gradients in Federated Learning", ICLR 2023, and of Ramakrishna and Dán, "Inferring Class-Label Distribution in
        Federated Learning", AISec 2022.
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
        way, sizes = _way(view), view.example_counts.clamp(min=1)
        solved = self._solve(view, _PRIOR, way, generator)
        deviation = solved.shown_deviation()
        if bool(way.any()):
            # The mean step may be anywhere between the global model and the client's own. The deviation of a uniform
            # place is the distance from the middle to the end, over the root of 3.
            at_end = self._solve(view, _PRIOR, 2 * way, generator)
            deviation = (deviation.square() + (at_end.counts - solved.counts).square() / 3).sqrt()
        if not view.noise_scale(f"{output_layer(view)}.bias"):
            counts = nearest_counts(solved.precision, solved.target, solved.counts, sizes)
            found = count_estimate(counts, deviation)
        else:
            shares = solved.counts.clamp(min=0)
            shares = shares / shares.sum(1, keepdim=True)
            found = count_estimate(largest_remainders(shares, sizes), deviation, shares=shares)
        return dataclasses.replace(found, assumes=_assumed(view))

    def linear_shares(self, view: RoundView, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Shares ``(V, K)`` by least squares alone, without prior, bounds or whole numbers, and their deviation.

        They are without bias where the predictions are known, so that they can be averaged and subtracted.
        """
        solved = self._solve(view, _FLAT, _way(view), generator)
        sizes = view.example_counts.clamp(min=1)[:, None]
        return solved.counts / sizes, solved.deviation / sizes

    def _solve(self, view: RoundView, prior: float, way: Tensor, generator: torch.Generator) -> "_Solved":
        layer = _Layer.of(view, way)
        sizes = view.example_counts.clamp(min=1)
        known = self._known(view, layer)
        noise = view.noise_scale(f"{output_layer(view)}.bias")
        scale = _scale(view, known, noisy=bool(noise), generator=generator)
        if known is None:
            solved = _without_images(layer, sizes, scale, noise, prior)
        else:
            solved = _with_images(view, layer, known, way, sizes, scale, noise, prior)
        return solved._replace(fitted=scale.isnan())

    def _known(self, view: RoundView, layer: "_Layer") -> Auxiliary | None:
        here = {IMAGES, LABELS} <= view.auxiliary.keys() and isinstance(view.algorithm, ClassifierAlgorithm)
        return auxiliary(view, layer.bias.shape[1], self.auxiliary_per_class) if self.images and here else None


def class_counts(view: RoundView, *, generator: torch.Generator) -> Tensor:
    """``(V, K)`` int64 inferred number of each client's examples of each class, with sums `example_counts`.

    Raises:
        ViewError: the clients' steps are known not to be those of SGD.
    """
    if _assumed(view):
        raise ViewError("expected clients with SGD, got an optimizer that scales parameters or clips examples")
    found: CompositionEstimate = OutputCounts().estimate(view, generator=generator)
    assert isinstance(found, CountEstimate)
    return found.counts


class _Layer(NamedTuple):
    """The last layer's change without that of weight decay, and the layer in the middle of local training.

    Changes are ``weight (V, K, F)`` and ``bias (V, K)``, as ``middle_weight (V, K, F)`` and ``middle_bias (V, K)`` are.
    """

    weight: Tensor
    bias: Tensor
    middle_weight: Tensor
    middle_bias: Tensor

    @classmethod
    def of(cls, view: RoundView, way: Tensor) -> "_Layer":
        name = output_layer(view)
        change = layer_change(view)
        weight, bias = change.weight.double(), change.bias.double()
        model = [view.model[f"{name}.{part}"].double() for part in ("weight", "bias")]
        middle = model[0] + way[:, None, None] * weight, model[1] + way[:, None] * bias
        if isinstance(view.algorithm, ClassifierAlgorithm):
            decay = view.algorithm.decay_change(view.model, view.example_counts)
            weight, bias = weight - decay[f"{name}.weight"], bias - decay[f"{name}.bias"]
        return cls(weight, bias, *middle)


def _way(view: RoundView) -> Tensor:
    """``(V,)`` how far from the global model (0) to the client's own (1) predictions are those of the mean step.

    A single step is made at the global model. Where clients add noise, their own models are not known.
    """
    half = torch.full((view.victims,), 0.5, dtype=torch.float64)
    if view.noise_scale(f"{output_layer(view)}.bias"):
        return torch.zeros_like(half)
    learner = view.algorithm
    return half if not isinstance(learner, ClassifierAlgorithm) else half * (learner.steps(view.example_counts) > 1)


class _Solved(NamedTuple):
    """Least squares ``n' A n - 2 n' b`` of the counts, its real solution of sum N, and the standard deviation of it.

    A is the ``precision (V, K, K)``, b the ``target (V, K)``; ``counts`` and ``deviation`` are ``(V, K)``; ``fitted
    (V,)`` says where the step size is the one that puts the counts nearest to whole numbers.
    """

    precision: Tensor
    target: Tensor
    counts: Tensor
    deviation: Tensor
    fitted: Tensor

    def shown_deviation(self) -> Tensor:
        """``(V, K)`` deviation that the counts do not refute, NaN for none.

        Of counts whose step size was fitted to whole numbers, only those say something that are nearer to whole numbers
        than the best of `_SCALES` step sizes would put any numbers, but for a probability of `_BY_CHANCE`.
        """
        shown = shown_deviation(self.counts, self.deviation)
        squares = (self.counts - self.counts.round()).square().sum(1)
        luck = self.fitted & (_SCALES * _near_whole(squares, self.counts.shape[1]) > _BY_CHANCE)
        return shown.masked_fill(luck[:, None], torch.nan)


def _near_whole(squares: Tensor, classes: int) -> Tensor:
    """Probability that real numbers of a whole sum, as many as classes, have at most this squared distance from whole.

    At most the share of a ball of K - 1 dimensions in a cell of the lattice of whole numbers with that sum, whose
    volume is the root of K.
    """
    size = classes - 1
    volume = size / 2 * math.log(math.pi) - math.lgamma(size / 2 + 1) - math.log(classes) / 2
    return (volume + size / 2 * squares.clamp(min=1e-300).log()).exp()


def _assumed(view: RoundView) -> str:
    """What is assumed of the clients' steps against what is known of them; empty for nothing."""
    learner = view.algorithm
    if not isinstance(learner, ClassifierAlgorithm) or learner.step_sums(view.example_counts) is not None:
        return ""
    clipped = "" if learner.local.example_clip is None else " with clipped examples"
    return f"SGD with steps of an unknown size; the clients train with {learner.local.optimizer}{clipped}"


def _scale(view: RoundView, known: Auxiliary | None, *, noisy: bool, generator: torch.Generator) -> Tensor:
    """``(V,)`` sum of the step sizes times the factor of the clip; NaN where it is unknown."""
    learner, unknown = view.algorithm, torch.full((view.victims,), torch.nan, dtype=torch.float64)
    if not isinstance(learner, ClassifierAlgorithm):
        return unknown
    rates = learner.step_sums(view.example_counts)
    if rates is None:  # steps of Adam have a size that follows from the gradients, and so has a clipped example
        return unknown
    bias = f"{output_layer(view)}.bias"
    clip = view.clip(bias)
    if clip is None or (noisy and known is None):
        return rates
    if not noisy:  # the last clip that binds leaves exactly its norm
        clips = [one for one in view.releases if one.clip is not None]
        joint = {name for one in clips if bias in one.parameters for name in one.parameters}
        squares = {n: view.deltas[n].flatten(1).double().square().sum(1) / (1 - 1e-4) ** 2 for n in view.deltas}
        for one in clips:
            if joint & {*one.parameters} and (factors := one.clip_factors(squares)) is not None:
                rates = rates.where(factors == 1, torch.nan)
        return rates
    assert known is not None
    own = view.example_counts[torch.arange(_SIMULATED) % view.victims]
    counts = largest_remainders(random_compositions(_SIMULATED, len(known.by_class), generator=generator), own)
    drawn = draw_examples(known, counts, generator=generator)
    return rates * mean_clip_factor(view, bias, (known.images, known.labels), drawn, generator=generator)


def _with_images(
    view: RoundView,
    layer: _Layer,
    known: Auxiliary,
    way: Tensor,
    sizes: Tensor,
    scale: Tensor,
    noise: float,
    prior: float,
) -> _Solved:
    """Solution with the mean predictions of auxiliary images, see `OutputCounts`."""
    soft, spread = _class_predictions(view, known, {name: value[None] for name, value in view.model.items()})
    soft, spread = soft.expand(len(sizes), -1, -1), spread.expand(len(sizes), -1, -1)
    if bool(way.any()):
        later, spread_later = _class_predictions(view, known, trained_models(view, view.deltas))
        part = way[:, None, None]
        soft, spread = torch.lerp(soft, later, part), torch.lerp(spread, spread_later, part)
    scale = _fitting_scale(soft.mean(1), layer.bias, sizes, scale)
    images = float(known.per_class.double().mean())
    total = sizes + sizes.double().square() / (len(known.by_class) * images)
    response = torch.eye(soft.shape[1], dtype=torch.float64) - soft.transpose(1, 2)
    return _solved(response, spread * total[:, None, None], layer.bias, sizes, scale, noise, prior)


def _class_predictions(view: RoundView, known: Auxiliary, models: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """``(B, K, K)`` mean predictions of the images of each class, and covariance of a prediction about that mean."""
    labels, soft = class_labels(known), class_outputs(view, known, models)[1].softmax(2)
    of_class = class_means(known, soft)
    off = soft - of_class[:, labels]
    return of_class, off.transpose(1, 2) @ off / max(len(labels) - len(known.by_class), 1)


def _without_images(layer: _Layer, sizes: Tensor, scale: Tensor, noise: float, prior: float) -> _Solved:
    """Solution with the prediction of the mean feature, see `OutputCounts`."""
    ratio = layer.weight / layer.bias.where(layer.bias.abs() > _TINY, _TINY)[..., None]
    guess = layer.middle_bias.softmax(-1).expand_as(layer.bias)
    for _ in range(_PASSES):
        change = layer.bias * (sizes / _fitting_scale(guess, layer.bias, sizes, scale))[:, None]
        counts = (sizes[:, None] * guess + change).clamp(min=0)
        weight = change.square() / counts.clamp(min=_FEWEST)
        weight = weight / weight.sum(1, keepdim=True).clamp(min=_TINY)
        feature = (weight[..., None] * ratio).sum(1)
        guess = ((layer.middle_weight * feature[:, None]).sum(2) + layer.middle_bias).softmax(1)
    scale = _fitting_scale(guess, layer.bias, sizes, scale)
    gap = sizes[:, None] * (guess + layer.bias / scale[:, None])
    spread = ((gap - gap.round()).square() + 2 * gap.clamp(max=0).square()).mean(1).clamp(min=1e-12)
    eye = torch.eye(guess.shape[1], dtype=torch.float64)
    return _solved(eye - guess[:, :, None], eye * spread[:, None, None], layer.bias, sizes, scale, noise, prior)


def _solved(
    response: Tensor, covariance: Tensor, bias: Tensor, sizes: Tensor, scale: Tensor, noise: float, deviation: float
) -> _Solved:
    """Weighted least squares of counts n with sums ``sizes (V,)``.

    For the change of the ``bias (V, K)`` by steps of ``scale (V,)``, with noise of a standard deviation: ``response (V,
    K, K)`` maps counts to ``N b / s``, which has ``covariance (V, K, K)`` given the counts, without that noise. Shares
    have a prior about equal ones, of a standard `deviation`.
    """
    classes = bias.shape[1]
    eye, factor = torch.eye(classes, dtype=torch.float64), (sizes / scale)[:, None]
    covariance = covariance + eye * (noise * factor[..., None]) ** 2
    # Without noise, changes of the bias sum to zero, so the covariance is singular in the direction of ones.
    weighted = response.transpose(1, 2) @ torch.linalg.pinv(covariance, rtol=1e-9, hermitian=True)
    precision, target = weighted @ response, (weighted @ (bias * factor)[..., None]).squeeze(2)
    equal = (sizes.double() / classes)[:, None].expand_as(bias)
    prior = (deviation * sizes.double())[:, None, None] ** -2
    precision, target = precision + prior * eye, target + prior.squeeze(2) * equal
    plane = eye - 1 / classes
    inverse = torch.linalg.pinv(plane @ precision @ plane, rtol=1e-9, hermitian=True)
    rest = target - (precision @ equal[..., None]).squeeze(2)
    counts = equal + (inverse @ rest[..., None]).squeeze(2)
    deviations = inverse.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
    return _Solved(precision, target, counts, deviations, torch.zeros(len(counts), dtype=torch.bool))


def _fitting_scale(guess: Tensor, bias: Tensor, sizes: Tensor, scale: Tensor) -> Tensor:
    """``(V,)`` step size s where it is known, otherwise the one that puts ``N (p + b / s)`` nearest to whole numbers.

    p is the ``guess (V, K)`` of mean predictions, b the change of the ``bias (V, K)``, N are ``sizes (V,)``; ``scale
    (V,)`` is NaN where s is unknown.
    """
    missing = scale.isnan()
    if not bool(missing.any()):
        return scale
    guess, bias, sizes = guess[missing], bias[missing], sizes[missing]
    least = (-bias / guess.clamp(min=1e-12)).amax(1).clamp(min=_TINY)
    tried = torch.logspace(0, 1, _SCALES, base=_LARGEST, dtype=torch.float64) * least[:, None]
    counts = sizes[:, None, None] * (guess[:, None] + bias[:, None] / tried[..., None])
    off = (counts - counts.round()).square().sum(2)
    best, place = off.min(1)
    clear = best < _CLEAR * off.median(1).values
    return scale.masked_scatter(missing, torch.where(clear, tried.gather(1, place[:, None]).squeeze(1), least))
