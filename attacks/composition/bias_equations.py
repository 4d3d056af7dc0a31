"""Least squares of class counts from the change of the last bias: the equations, with and without auxiliary images.

A step of size s on the mean cross-entropy of N examples changes the bias of class c by ``s (n_c / N - p_c)``. The mean
predictions p are those of auxiliary images, ``p = P' n / N``, or that of the mean feature.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedleak.attacks.composition.base import trained_models
from fedleak.attacks.composition.counts import shown_deviation
from fedleak.attacks.composition.label_inference import class_labels, class_means, class_outputs
from fedleak.attacks.composition.step_scale import SCALES, fitting_scale
from fedleak.client.auxiliary_images import Auxiliary
from fedleak.client.last_layer import layer_change, output_layer
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.view import RoundView

_PASSES = 6
"""Passes in which the mean feature and the counts improve each other."""
_TINY = 1e-30
_BY_CHANCE = 0.01
"""Probability of counts so near to whole numbers, with the best of the tried scales, that rules out chance."""
_FEWEST = 0.3
"""Number of examples for which a class without any is taken, in weights by the inverse of it."""


class LastLayer(NamedTuple):
    """The last layer's change without that of weight decay, and the layer in the middle of local training.

    Changes are ``weight (V, K, F)`` and ``bias (V, K)``, as ``middle_weight (V, K, F)`` and ``middle_bias (V, K)`` are.
    """

    weight: Tensor
    bias: Tensor
    middle_weight: Tensor
    middle_bias: Tensor

    @classmethod
    def of(cls, view: RoundView, mean_step: Tensor) -> "LastLayer":
        """The layer of a view, whose middle is at ``mean_step (V,)`` from the global model (0) to the client's (1)."""
        name = output_layer(view)
        change = layer_change(view)
        weight = change.weight.double()
        bias = change.bias.double()
        middle_weight = view.model[f"{name}.weight"].double() + mean_step[:, None, None] * weight
        middle_bias = view.model[f"{name}.bias"].double() + mean_step[:, None] * bias
        if isinstance(view.algorithm, ClassifierAlgorithm):
            decay = view.algorithm.decay_change(view.model, view.example_counts)
            weight = weight - decay[f"{name}.weight"]
            bias = bias - decay[f"{name}.bias"]
        return cls(weight, bias, middle_weight, middle_bias)


class CountSolution(NamedTuple):
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
        than the best of `SCALES` step sizes would put any numbers, but for a probability of `_BY_CHANCE`.
        """
        shown = shown_deviation(self.counts, self.deviation)
        squares = (self.counts - self.counts.round()).square().sum(1)
        by_chance = SCALES * _near_whole(squares, self.counts.shape[1])
        is_luck = self.fitted & (by_chance > _BY_CHANCE)
        return shown.masked_fill(is_luck[:, None], torch.nan)


def _near_whole(squares: Tensor, classes: int) -> Tensor:
    """Probability that real numbers of a whole sum, as many as classes, have at most this squared distance from whole.

    At most the share of a ball of K - 1 dimensions in a cell of the lattice of whole numbers with that sum, whose
    volume is the root of K.
    """
    dimensions = classes - 1
    # Logarithm of pi^(d/2) / gamma(d/2 + 1), the volume of the unit ball, over sqrt(K), that of the cell.
    unit_ball = dimensions / 2 * math.log(math.pi) - math.lgamma(dimensions / 2 + 1)
    log_ratio = unit_ball - math.log(classes) / 2
    # A ball of radius r has r^d times the volume.
    return (log_ratio + dimensions / 2 * squares.clamp(min=1e-300).log()).exp()


def solve_with_images(
    view: RoundView,
    layer: LastLayer,
    image_pool: Auxiliary,
    mean_step: Tensor,
    sizes: Tensor,
    scale: Tensor,
    noise: float,
    prior: float,
) -> CountSolution:
    """Solution with the mean predictions of auxiliary images, see `OutputCounts`."""
    global_model = {name: parameter[None] for name, parameter in view.model.items()}
    soft, spread = _class_predictions(view, image_pool, global_model)
    soft = soft.expand(len(sizes), -1, -1)
    spread = spread.expand(len(sizes), -1, -1)
    if bool(mean_step.any()):
        # Predictions between those of the global model and of the client's own.
        soft_at_end, spread_at_end = _class_predictions(view, image_pool, trained_models(view, view.deltas))
        position = mean_step[:, None, None]
        soft = torch.lerp(soft, soft_at_end, position)
        spread = torch.lerp(spread, spread_at_end, position)
    scale = fitting_scale(soft.mean(1), layer.bias, sizes, scale)
    # Variance of N p: N from the client's own examples, N^2 / M from the sample of M auxiliary images.
    images = float(image_pool.per_class.double().mean())
    variance_factor = sizes + sizes.double().square() / (len(image_pool.by_class) * images)
    # N b / s = (I - P') n.
    response = torch.eye(soft.shape[1], dtype=torch.float64) - soft.transpose(1, 2)
    covariance = spread * variance_factor[:, None, None]
    return _least_squares(response, covariance, layer.bias, sizes, scale, noise, prior)


def _class_predictions(view: RoundView, image_pool: Auxiliary, models: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """``(B, K, K)`` mean predictions of the images of each class, and covariance of a prediction about that mean."""
    labels = class_labels(image_pool)
    _, logits = class_outputs(view, image_pool, models)
    soft = logits.softmax(2)
    of_class = class_means(image_pool, soft)
    off = soft - of_class[:, labels]
    # K means are fitted, which take K degrees of freedom.
    degrees_of_freedom = max(len(labels) - len(image_pool.by_class), 1)
    return of_class, off.transpose(1, 2) @ off / degrees_of_freedom


def solve_without_images(layer: LastLayer, sizes: Tensor, scale: Tensor, noise: float, prior: float) -> CountSolution:
    """Solution with the prediction of the mean feature, see `OutputCounts`."""
    # dW_c / db_c, a mean feature with the weights p_ic - y_ic.
    ratio = layer.weight / layer.bias.where(layer.bias.abs() > _TINY, _TINY)[..., None]
    guess = layer.middle_bias.softmax(-1).expand_as(layer.bias)
    for _ in range(_PASSES):
        # n_c = N p_c + N b_c / s, so that the change is n_c - N p_c.
        change = layer.bias * (sizes / fitting_scale(guess, layer.bias, sizes, scale))[:, None]
        counts = (sizes[:, None] * guess + change).clamp(min=0)
        # Mean of the ratios with the weights (N p_c - n_c)^2 / n_c, the inverse of their variances.
        weight = change.square() / counts.clamp(min=_FEWEST)
        weight = weight / weight.sum(1, keepdim=True).clamp(min=_TINY)
        feature = (weight[..., None] * ratio).sum(1)
        # p = softmax(W h + b).
        guess = ((layer.middle_weight * feature[:, None]).sum(2) + layer.middle_bias).softmax(1)
    scale = fitting_scale(guess, layer.bias, sizes, scale)
    counts = sizes[:, None] * (guess + layer.bias / scale[:, None])
    # The error is what the counts show: their distance from whole numbers, and twice the square of what is negative.
    off_whole = (counts - counts.round()).square()
    negative = 2 * counts.clamp(max=0).square()
    spread = (off_whole + negative).mean(1).clamp(min=1e-12)
    # All examples have one prediction: N b / s = n - p sum n.
    identity = torch.eye(guess.shape[1], dtype=torch.float64)
    response = identity - guess[:, :, None]
    covariance = identity * spread[:, None, None]
    return _least_squares(response, covariance, layer.bias, sizes, scale, noise, prior)


def _least_squares(
    response: Tensor, covariance: Tensor, bias: Tensor, sizes: Tensor, scale: Tensor, noise: float, deviation: float
) -> CountSolution:
    """Weighted least squares of counts n with sums ``sizes (V,)``.

    For the change of the ``bias (V, K)`` by steps of ``scale (V,)``, with noise of a standard deviation: ``response (V,
    K, K)`` maps counts to ``N b / s``, which has ``covariance (V, K, K)`` given the counts, without that noise. Shares
    have a prior about equal ones, of a standard `deviation`.
    """
    classes = bias.shape[1]
    identity = torch.eye(classes, dtype=torch.float64)
    factor = (sizes / scale)[:, None]  # N / s
    covariance = covariance + identity * (noise * factor[..., None]) ** 2
    # Without noise, changes of the bias sum to zero, so the covariance is singular in the direction of ones.
    weighted = response.transpose(1, 2) @ torch.linalg.pinv(covariance, rtol=1e-9, hermitian=True)
    precision = weighted @ response
    target = (weighted @ (bias * factor)[..., None]).squeeze(2)
    # The prior of counts: N(N / K, (deviation N)^2).
    equal = (sizes.double() / classes)[:, None].expand_as(bias)
    prior = (deviation * sizes.double())[:, None, None] ** -2
    precision = precision + prior * identity
    target = target + prior.squeeze(2) * equal
    # The sum is N: from equal counts, only directions of sum zero are free.
    plane = identity - 1 / classes
    inverse = torch.linalg.pinv(plane @ precision @ plane, rtol=1e-9, hermitian=True)
    rest = target - (precision @ equal[..., None]).squeeze(2)
    counts = equal + (inverse @ rest[..., None]).squeeze(2)
    deviations = inverse.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
    not_fitted = torch.zeros(len(counts), dtype=torch.bool)
    return CountSolution(precision, target, counts, deviations, not_fitted)
