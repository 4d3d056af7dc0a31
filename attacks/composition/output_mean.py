"""Share of positives, or mean target, of clients whose network has one output: attacks and baselines."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call

from fedleak.attacks.composition.base import trained_models
from fedleak.attacks.composition.one_output import PositiveShare, TargetMean
from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.last_layer import layer_change_of, one_output
from fedleak.client.nets.batch_norm import mask_batches
from fedleak.client.nets.dropout import draw_noise
from fedleak.client.network import NUMBER, NetworkAlgorithm
from fedleak.client.one_output import OneOutput
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_UNIFORM = 12**-0.5
"""Standard deviation of a share that is uniform in [0, 1], which gives steps of an unknown size their scale."""
_TINY = 1e-30
_LEAST = 1e-6
"""Distance from 1 of the largest mean step over the learning rate, of which the gradient is inferred."""


@dataclass(frozen=True, kw_only=True)
class OutputShare(Attack):
    """Share of positives from the change of the bias of the one output.

    A step of size s on the mean binary cross-entropy changes the bias by ``s (q - p)``, with the share q of positives
    and the mean predicted probability p. What is unknown is p:

    * With auxiliary examples: ``p = a + b q``, from their mean predictions by class, so ``q = (a + d / s) / (1 - b)``
      for a change d; the mean of both ends of the training.
    * Without: that of the mean feature, which is the slope of the weights' changes over the biases' of all clients of
      the view, ``h = sum d W / sum d^2``.

    Where the learner is unknown or clips, s is unknown too. It is then the one with which the shares of the view's
    clients have the spread about p of a uniform distribution, and one for all; the order of the clients does not depend
    on it. Steps of Adam have about the size ``lr g / sqrt(g^2 + v / B)`` for a mean gradient g and a variance v / B of
    that of B examples, with ``v = p (1 - p)``, so a mean step of r times lr gives ``g = r sqrt(v / (B (1 - r^2)))``.
    One step of Adam only says whether q is above p, and q is taken for the middle between p and 0 or 1.

    Threat model: passive server, one round; knows that the output is a logit, and if it has them, the learning rate and
    a few examples of both kinds.

    References:
        This project. The equation of the bias is that of [Wainakh22], for one output.
    """

    name = "positive-share"
    family = "composition"
    estimates = PositiveShare
    threat_model = ThreatModel(
        sees="the update of the last layer, of one output, and the global model",
        knows="that it is a logit; uses the learning rate and examples of both kinds if it has them",
        needs=("deltas", "model"),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> PositiveShare:
        means, assumes = _target_means(view, binary=True)
        return PositiveShare(shares=means.clamp(0, 1), assumes=assumes)


@dataclass(frozen=True, kw_only=True)
class OutputMean(Attack):
    """Mean target of a regression from the change of the bias of the one output.

    As `OutputShare`: a step of size s on the mean squared error changes the bias by ``2 s (y - f)``, with the mean
    target y and the mean prediction f; likewise for other losses whose derivative is linear in the target. The step
    size must be known.

    Threat model: passive server, one round; knows the clients' training algorithm, and uses auxiliary examples.

    References:
        This project.
    """

    name = "target-mean"
    family = "composition"
    estimates = TargetMean
    threat_model = ThreatModel(
        sees="the update of the last layer, of one output, and the global model",
        knows="the clients' training algorithm; uses examples with targets if it has them",
        needs=("deltas", "model", NetworkAlgorithm),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> TargetMean:
        means, assumes = _target_means(view, binary=False)
        return TargetMean(means=means, assumes=assumes)


class GuessedShare(Attack):
    """Baseline: the share of positives among the server's own examples, or a half.

    Threat model: a server that does not use the update.

    References:
        This project.
    """

    name = "guessed-share"
    family = "composition"
    baseline = True
    estimates = PositiveShare
    threat_model = ThreatModel(sees="no update", knows="examples of both kinds, if it has them", needs=("deltas",))

    def run(self, view: RoundView, *, generator: torch.Generator) -> PositiveShare:
        _head(view, binary=True)
        return PositiveShare(shares=_guessed(view, 0.5).clamp(0, 1))


class GuessedMean(Attack):
    """Baseline: the mean target of the server's own examples, or zero.

    Threat model: a server that does not use the update.

    References:
        This project.
    """

    name = "guessed-mean"
    family = "composition"
    baseline = True
    estimates = TargetMean
    threat_model = ThreatModel(
        sees="no update", knows="examples with targets, if it has them", needs=("deltas", NetworkAlgorithm)
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> TargetMean:
        _head(view, binary=False)
        return TargetMean(means=_guessed(view, 0.0))


class _Response(NamedTuple):
    """Mean response ``constant + slope * y`` of the clients' outputs by their mean target y, each ``(V,)``."""

    constant: Tensor
    slope: Tensor


def _head(view: RoundView, *, binary: bool) -> OneOutput | None:
    """The loss of the one output; None for an unknown learner, which is taken for binary.

    Raises:
        ViewError: the network has several outputs, or the loss is of another kind.
    """
    one_output(view)
    if view.algorithm is None:
        return None
    head = OneOutput.of(view.require(NetworkAlgorithm))
    if head is None or head.binary != binary:
        kind = "a loss of a regression, with a derivative linear in y"
        if binary:
            kind = "a binary cross-entropy on a logit"
        raise ViewError(f"expected clients that train one output by {kind}; got another loss")
    return head


def _target_means(view: RoundView, *, binary: bool) -> tuple[Tensor, str]:
    """``(V,)`` mean targets, and what is assumed of the clients' steps."""
    head = _head(view, binary=binary)
    name = one_output(view)
    weight, bias = layer_change_of(view, name)
    weight = weight.double().flatten(1)
    bias = bias.double().flatten()
    # The change that the gradients make, without that of weight decay, and the sum of the step sizes if it is known.
    rates = None
    slope = 1.0
    if head is not None:
        learner = view.require(NetworkAlgorithm)
        decay = learner.decay_change(view.model, view.example_counts)
        weight = weight - decay[f"{name}.weight"].flatten(1)
        bias = bias - decay[f"{name}.bias"].flatten()
        rates = learner.step_sums(view.example_counts)
        slope = head.slope
    if view.clip(f"{name}.bias") is not None:
        rates = None
    response = _response(view, head, name, weight, bias)
    # The mean descent direction of the bias: its change over the step sizes.
    assumes = ""
    if rates is not None:
        gradient = bias / rates
    elif not binary:
        raise ViewError("expected plain SGD without a clip, whose steps give the targets' units; got other steps")
    elif head is not None and view.require(NetworkAlgorithm).local.optimizer == "adam" and not view.releases:
        gradient = _gradients_of_adam(view, bias, response, slope)
        assumes = "that the clients' steps of Adam have the size that the noise of a batch gives them"
    else:
        # One step size for all clients, with which their shares have the spread of uniform ones.
        spread = _UNIFORM * (slope - response.slope).mean()
        gradient = bias * spread / bias.square().mean().sqrt().clamp(min=_TINY)
        assumes = "SGD with steps of an unknown size, and shares with the spread of uniform ones"
    # gradient = slope y - (a + b y), so y = (a + gradient) / (slope - b).
    return (response.constant + gradient) / (slope - response.slope).clamp(min=1e-6), assumes


def _gradients_of_adam(view: RoundView, bias: Tensor, response: _Response, slope: float) -> Tensor:
    """``(V,)`` mean descent direction of the bias, see `OutputShare`."""
    learner = view.require(NetworkAlgorithm)
    steps = learner.steps(view.example_counts)
    batch = view.example_counts.double()
    if learner.local.batch_size is not None:
        batch = batch.clamp(max=learner.local.batch_size)
    # r, the mean step over the learning rate; p, the share at which the gradient is zero: slope p = a + b p.
    ratio = (bias / (learner.local.learning_rate * steps)).clamp(-1 + _LEAST, 1 - _LEAST)
    free_slope = slope - response.slope
    share = (response.constant / free_slope).clamp(0, 1)
    # g = r sqrt(v / (B (1 - r^2))) with v = slope^2 p (1 - p).
    gradient = ratio * (slope**2 * share * (1 - share) / (batch * (1 - ratio.square()))).sqrt()
    # To the edges at most; half of the way for one step, of which the sign is known only.
    is_one_step = steps == 1
    distance_to_edge = torch.where(bias > 0, 1 - share, share)
    reach = torch.where(is_one_step, 0.5, 1.0) * free_slope * distance_to_edge
    limited = torch.where(is_one_step, reach, torch.minimum(gradient.abs(), reach))
    return bias.sign() * limited


def _response(view: RoundView, head: OneOutput | None, name: str, weight: Tensor, bias: Tensor) -> _Response:
    """Mean response of the clients' outputs, of auxiliary examples or of the mean feature."""
    # Noise hides where a client's model ended; then the global model alone counts.
    end_share = 1.0
    if view.noise_scale(f"{name}.bias"):
        end_share = 0.0
    if head is not None and {IMAGES, LABELS} <= view.auxiliary.keys():
        ends = []
        for position in (0, 1):
            deltas = {parameter: end_share * position * delta for parameter, delta in view.deltas.items()}
            ends.append(_auxiliary_response(view, head, trained_models(view, deltas)))
        return _Response(
            torch.stack([end.constant for end in ends]).mean(0),
            torch.stack([end.slope for end in ends]).mean(0),
        )
    # The mean feature h = sum d W / sum d^2 over the clients, and its output in the middle of the training.
    feature = (bias[:, None] * weight).sum(0) / bias.square().sum().clamp(min=_TINY)
    middle_weight = view.model[f"{name}.weight"].double().flatten() + end_share * weight / 2
    outputs = middle_weight @ feature + view.model[f"{name}.bias"].double() + end_share * bias / 2
    if head is not None and view.require(NetworkAlgorithm).local.optimizer != "sgd":
        outputs = torch.zeros_like(outputs)  # weights and bias change by equal steps, whose ratio is no feature
    response = outputs.sigmoid()
    if head is not None:
        response = head.response(outputs)
    return _Response(response, torch.zeros_like(response))


@torch.no_grad()
def _auxiliary_response(view: RoundView, head: OneOutput, models: Mapping[str, Tensor]) -> _Response:
    """Least squares of the response to auxiliary examples by their targets, of models ``(V, *shape)``."""
    algorithm = view.require(NetworkAlgorithm)
    inputs, targets = _auxiliary(view)
    network = copy.deepcopy(algorithm.template)
    mask_batches(network, None)
    draw_noise(network, None)
    rows = []
    for victim in range(view.victims):
        parameters = {name: values[victim] for name, values in algorithm.trained(models).items()}
        outputs = functional_call(network, parameters, (inputs,)).flatten()
        rows.append(head.response(outputs))
    responses = torch.stack(rows)
    # The regression line of responses on targets: slope = <r, y - mean y> / |y - mean y|^2, 0 for equal targets.
    centred = targets - targets.mean()
    energy = centred.square().sum()
    slope = responses @ centred / energy.clamp(min=_TINY) * (energy > 0)
    constant = responses.mean(1) - slope * targets.mean()
    return _Response(constant, slope)


def _auxiliary(view: RoundView) -> tuple[Tensor, Tensor]:
    """Inputs ``(M, ...)`` and targets ``(M,)`` of the server's own examples."""
    images, labels = view.auxiliary[IMAGES], view.auxiliary[LABELS]
    algorithm = view.require(NetworkAlgorithm).on(images, labels)
    inputs, targets = algorithm.fields({NUMBER: torch.arange(len(images))})
    return inputs, targets.double().flatten()


def _guessed(view: RoundView, otherwise: float) -> Tensor:
    """``(V,)`` mean target of the server's examples, or another number."""
    mean = otherwise
    if view.algorithm is not None and {IMAGES, LABELS} <= view.auxiliary.keys():
        _, targets = _auxiliary(view)
        mean = float(targets.mean())
    return torch.full((view.victims,), mean, dtype=torch.float64)
