"""Share of positives, or mean target, of clients whose network has one output."""

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call

from fedleak.attacks.applicability import without_one_output
from fedleak.attacks.composition.base import trained_models
from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.last_layer import layer_change_of, one_output
from fedleak.client.nets.batch_norm import mask_batches
from fedleak.client.nets.dropout import draw_noise
from fedleak.client.network import NUMBER, NetworkAlgorithm
from fedleak.client.one_output import OneOutput
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Detail, Estimate, Scores, check_tensor
from fedleak.core.metric_table import CORRELATION, POSITIVE, Metric
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView, View

_UNIFORM = 12**-0.5
"""Standard deviation of a share that is uniform in [0, 1], which gives steps of an unknown size their scale."""
_TINY = 1e-30
_LEAST = 1e-6


@dataclass(frozen=True, kw_only=True)
class PositiveShare(Estimate):
    """The share of a client's examples that are positive, of a network with one logit.

    Attributes:
        shares: ``(V,)`` in [0, 1].
        assumes: what is assumed of the clients' steps; empty for nothing.
    """

    inferred = "what share of its examples is positive"
    truth = ("class_counts",)
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        Metric(
            "share-error",
            "Share error is the L1 distance of the inferred share of positives and the true one.",
            lower_is_better=True,
            judged=True,
            span=(0.0, 1.0),
            words="is wrong by {} percentage points about the share of positive examples",
        ),
        Metric(
            "share-correlation",
            "Share correlation is that of inferred and true shares over the clients, the mean of their products.",
            span=CORRELATION,
        ),
    )
    shares: Tensor
    assumes: str = ""

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_one_output(view, truth, binary=True)

    def check(self, view: View) -> None:
        check_tensor("shares", self.shares, (view.victims,), dtype=torch.float64)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        counts = truth["class_counts"].double()
        if counts.shape[1] != 2:
            raise ViewError(f"expected counts of two classes, negatives and positives; got {counts.shape[1]}")
        return _scored(self.shares, counts[:, 1] / counts.sum(1), "share", view, self.assumes)


@dataclass(frozen=True, kw_only=True)
class TargetMean(Estimate):
    """The mean of a client's targets, of a network that learns a regression.

    Attributes:
        means: ``(V,)`` in the units of the targets.
        assumes: what is assumed of the clients' steps; empty for nothing.
    """

    inferred = "the mean of its targets"
    truth = ("target_mean",)
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        Metric(
            "mean-error",
            "Mean error is the distance of the inferred mean target and the true one, in the targets' units.",
            lower_is_better=True,
            judged=True,
            words="is wrong by {} about the mean target, in the targets' unit",
            words_scale=1.0,
            span=POSITIVE,
        ),
        Metric(
            "mean-correlation",
            "Mean correlation is that of inferred and true means over the clients, the mean of their products.",
            span=CORRELATION,
        ),
    )
    means: Tensor
    assumes: str = ""

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_one_output(view, truth, binary=False)

    def check(self, view: View) -> None:
        check_tensor("means", self.means, (view.victims,), dtype=torch.float64)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        return _scored(self.means, truth["target_mean"].double(), "mean", view, self.assumes)


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
        This project. The equation of the bias is that of Wainakh et al., "User-Level Label Leakage from Gradients in
        Federated Learning", PETS 2022, arXiv:2105.09369, for one output.
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


def _scored(inferred: Tensor, true: Tensor, name: str, view: View, assumes: str) -> Scores:
    # Standardised by all clients of the view, whose mean product is the correlation.
    units = [(value - value.mean()) / value.std(correction=0).clamp(min=_TINY) for value in (inferred, true)]
    varied = min(float(value.std(correction=0)) for value in (inferred, true)) > 0 if len(true) > 1 else False
    products = units[0] * units[1] if varied else torch.full_like(inferred, torch.nan)
    # A client changes the correlation r by z_x z_y - r (z_x^2 + z_y^2) / 2 over the number of clients (its influence).
    correlation = products.mean()
    influences = correlation + products - correlation * (units[0].square() + units[1].square()) / 2
    details: list[Detail] = [{"clients": view.victims, "assumes": assumes}] if assumes else []
    label = f"{name}-correlation"
    errors = (inferred - true).abs()
    return Scores({f"{name}-error": errors, label: products}, influences={label: influences}, details=details)


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
        kind = (
            "a binary cross-entropy on a logit" if binary else "a loss of a regression, with a derivative linear in y"
        )
        raise ViewError(f"expected clients that train one output by {kind}; got another loss")
    return head


def _target_means(view: RoundView, *, binary: bool) -> tuple[Tensor, str]:
    """``(V,)`` mean targets, and what is assumed of the clients' steps."""
    head, name = _head(view, binary=binary), one_output(view)
    weight, bias = layer_change_of(view, name)
    weight, bias, rates, assumes = weight.double().flatten(1), bias.double().flatten(), None, ""
    if head is not None:
        learner = view.require(NetworkAlgorithm)
        decay = learner.decay_change(view.model, view.example_counts)
        weight, bias = weight - decay[f"{name}.weight"].flatten(1), bias - decay[f"{name}.bias"].flatten()
        rates = learner.step_sums(view.example_counts)
    if view.clip(f"{name}.bias") is not None:
        rates = None
    slope = 1.0 if head is None else head.slope
    response = _response(view, head, name, weight, bias)
    if rates is not None:
        change = bias / rates
    elif not binary:
        raise ViewError("expected plain SGD without a clip, whose steps give the targets' units; got other steps")
    elif head is not None and view.require(NetworkAlgorithm).local.optimizer == "adam" and not view.releases:
        change = _gradients_of_adam(view, bias, response, slope)
        assumes = "that the clients' steps of Adam have the size that the noise of a batch gives them"
    else:
        spread = _UNIFORM * (slope - response.slope).mean()
        change = bias * spread / bias.square().mean().sqrt().clamp(min=_TINY)
        assumes = "SGD with steps of an unknown size, and shares with the spread of uniform ones"
    return (response.constant + change) / (slope - response.slope).clamp(min=1e-6), assumes


def _gradients_of_adam(view: RoundView, bias: Tensor, response: _Response, slope: float) -> Tensor:
    """``(V,)`` mean descent direction of the bias, see `OutputShare`."""
    learner = view.require(NetworkAlgorithm)
    steps, sizes = learner.steps(view.example_counts), view.example_counts.double()
    batch = sizes if learner.local.batch_size is None else sizes.clamp(max=learner.local.batch_size)
    ratio = (bias / (learner.local.learning_rate * steps)).clamp(-1 + _LEAST, 1 - _LEAST)
    free = slope - response.slope
    middle = (response.constant / free).clamp(0, 1)
    gradient = ratio * (slope**2 * middle * (1 - middle) / (batch * (1 - ratio.square()))).sqrt()
    # To the edges at most; half of the way for one step, of which the sign is known only.
    reach = torch.where(steps == 1, 0.5, 1.0) * free * torch.where(bias > 0, 1 - middle, middle)
    limited = torch.where(steps == 1, reach, torch.minimum(gradient.abs(), reach))
    return bias.sign() * limited


def _response(view: RoundView, head: OneOutput | None, name: str, weight: Tensor, bias: Tensor) -> _Response:
    """Mean response of the clients' outputs, of auxiliary examples or of the mean feature."""
    moved = 0.0 if view.noise_scale(f"{name}.bias") else 1.0
    if head is not None and {IMAGES, LABELS} <= view.auxiliary.keys():
        models = [trained_models(view, {n: moved * end * d for n, d in view.deltas.items()}) for end in (0, 1)]
        ends = [_auxiliary_response(view, head, own) for own in models]
        return _Response(*[torch.stack(parts).mean(0) for parts in zip(*ends, strict=True)])
    feature = (bias[:, None] * weight).sum(0) / bias.square().sum().clamp(min=_TINY)
    middle = view.model[f"{name}.weight"].double().flatten() + moved * weight / 2
    outputs = middle @ feature + view.model[f"{name}.bias"].double() + moved * bias / 2
    if head is not None and view.require(NetworkAlgorithm).local.optimizer != "sgd":
        outputs = torch.zeros_like(outputs)  # weights and bias change by equal steps, whose ratio is no feature
    response = outputs.sigmoid() if head is None else head.response(outputs)
    return _Response(response, torch.zeros_like(response))


@torch.no_grad()
def _auxiliary_response(view: RoundView, head: OneOutput, models: Mapping[str, Tensor]) -> _Response:
    """Least squares of the response to auxiliary examples by their targets, of models ``(V, *shape)``."""
    algorithm = view.require(NetworkAlgorithm)
    inputs, targets = _auxiliary(view)
    network = copy.deepcopy(algorithm.template)
    mask_batches(network, None)
    draw_noise(network, None)
    found = []
    for victim in range(view.victims):
        own = {name: value[victim] for name, value in algorithm.trained(models).items()}
        found.append(head.response(functional_call(network, own, (inputs,)).flatten()))
    responses, centred = torch.stack(found), targets - targets.mean()
    energy = centred.square().sum()
    slope = responses @ centred / energy.clamp(min=_TINY) * (energy > 0)
    return _Response(responses.mean(1) - slope * targets.mean(), slope)


def _auxiliary(view: RoundView) -> tuple[Tensor, Tensor]:
    """Inputs ``(M, ...)`` and targets ``(M,)`` of the server's own examples."""
    images, labels = view.auxiliary[IMAGES], view.auxiliary[LABELS]
    algorithm = view.require(NetworkAlgorithm).on(images, labels)
    inputs, targets = algorithm.fields({NUMBER: torch.arange(len(images))})
    return inputs, targets.double().flatten()


def _guessed(view: RoundView, otherwise: float) -> Tensor:
    """``(V,)`` mean target of the server's examples, or another number."""
    held = view.algorithm is not None and {IMAGES, LABELS} <= view.auxiliary.keys()
    mean = float(_auxiliary(view)[1].mean()) if held else otherwise
    return torch.full((view.victims,), mean, dtype=torch.float64)
