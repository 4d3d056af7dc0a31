"""Images of one step, matched with their own features before the first linear layer of a convolutional network."""

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from fedleak.attacks.reconstruction.gradient_matching import InvertingGradients, decoupled, image_shape
from fedleak.attacks.reconstruction.separated_features import Separated, separate
from fedleak.client.engine.fast.manual_backward import Chain, chain_of
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Scores
from fedleak.core.metric_table import Metric
from fedleak.core.progress import with_progress
from fedleak.core.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView, View

_SEPARATED = "separated"
_MIDDLE, _SPREAD = 0.5, 0.25
"""The solver works with standardised images, as in gradient matching: ``image = 0.5 + 0.25 z``."""
_STEP = 0.1
_SMOOTHEST, _SHARPEST = 0.5, 0.02
"""First and last width of the smooth activations, in standard deviations of their inputs."""
_SHARP = 0.75
"""Share of the iterations after which activations are sharpest."""


@dataclass(frozen=True, kw_only=True)
class SeparatedImages(ReconstructionEstimate):
    """Images, and how many of them were matched with features of their own.

    Attributes:
        separated: ``(V,)`` share of the client's images whose features are certain.
    """

    metrics = (
        *ReconstructionEstimate.metrics,
        Metric(
            _SEPARATED,
            "Separated is the share of a client's images whose features before the first linear layer are certain.",
            leak=False,
            span=(0.0, 1.0),
        ),
    )
    separated: Tensor

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        scores = super().score(view, truth)
        return dataclasses.replace(scores, metrics={**scores.metrics, _SEPARATED: self.separated})


@dataclass(frozen=True, kw_only=True)
class SeparateMatching(ReconstructionAttack):
    """Images matched with their own features and error signals, which the linear layer after convolutions reveals.

    1. The update of the first linear layer after the convolutions is separated into the features of each image, with
       its class and the gradient of its loss by these features (`separated_features.separate`), all certain and exact
       to the precision of the update.
    2. Images are those whose features are these, and for which the convolutions' gradients, with these error signals,
       have the received ones' direction: ``sum_i |f(x_i) - f_i|^2 / |f_i|^2 + 1 - cos + w TV``, by Adam on signs.

    Where a max-pooling or a ReLU switches, the gradient jumps, and gradient matching stops at patterns of the start.
    So the convolutional part is smooth at first: softplus for ReLU, and ``s log sum exp(x / s)`` for a maximum, with s
    from half to a fiftieth of the standard deviation of the inputs x, geometrically.

    Clients of which not all images can be separated get `InvertingGradients`, with the same number of iterations. The
    network must be a chain of convolutions, ReLU, max-poolings without padding and linear layers.

    Threat model: passive server, one round of clients that make one step of plain SGD; knows the network and the
    learning rate, not the examples.

    Args:
        max_iter: iterations.
        total_variation: weight of the total variation of the images, standardised by 0.5 and 0.25.
        minutes: time limit of a client, and of the others' gradient matching.

    References:
        This project, for the images from features and the smooth network; see `separated_features` for the features.
        The objective on the convolutions is that of Geiping et al., "Inverting Gradients", NeurIPS 2020.
    """

    name = "separate-matching"
    cost = "seconds to minutes per victim"
    audited_victims = 4
    slow = True
    estimates = SeparatedImages
    threat_model = ThreatModel(
        sees="the update of the whole model",
        knows="the clients' training algorithm, of one step",
        needs=("deltas", "model", ClassifierAlgorithm),
    )

    max_iter: PositiveInt = 400
    total_variation: NonNegativeFloat = 0.02
    minutes: PositiveFloat = 10.0

    def run(self, view: RoundView, *, generator: torch.Generator) -> SeparatedImages:
        network, shape = _Halves.of(view), image_shape(view)
        rates = _step_sizes(view)
        found = [self._separate(view, network, victim, rates, generator) for victim in range(view.victims)]
        images: dict[int, tuple[Tensor, Tensor]] = {}
        for victim in with_progress([v for v, own in enumerate(found) if own.complete]):
            images[victim] = (
                self._match(view, network, victim, rates, found[victim], shape, generator),
                found[victim].classes,
            )
        rest = torch.tensor([victim for victim in range(view.victims) if victim not in images], dtype=torch.int64)
        if len(rest):
            plain = InvertingGradients(
                max_iter=self.max_iter, total_variation=self.total_variation, minutes=self.minutes
            ).run(view.select(rest), generator=generator)
            for place, victim in enumerate(rest.tolist()):
                kept = slice(0, int(plain.count[place]))
                images[victim] = plain.records[place, kept], plain.labels[place, kept]
        pairs = [images[victim] for victim in range(view.victims)]
        shares = [len(own.classes) for own in found] / view.example_counts.clamp(min=1).double().numpy()
        made = reconstruction([records for records, _ in pairs], labels=[labels for _, labels in pairs])
        return SeparatedImages(**vars(made), separated=torch.from_numpy(shares))

    def _separate(
        self, view: RoundView, network: "_Halves", victim: int, rates: Tensor, generator: torch.Generator
    ) -> Separated:
        model = {name: value[victim].double() for name, value in view.sent_models().items()}
        decay = view.require(ClassifierAlgorithm).decay_change(model, view.example_counts[victim : victim + 1])
        weight, bias = (
            (view.deltas[name][victim].double() - decay[name].reshape(model[name].shape)) / -rates[victim]
            for name in (f"{network.linear}.weight", f"{network.linear}.bias")
        )
        return separate(
            torch.cat([weight, bias[:, None]], dim=1),
            int(view.example_counts[victim]),
            lambda inputs: network.errors(model, inputs),
            precision=torch.finfo(view.deltas[f"{network.linear}.weight"].dtype).eps,
            generator=generator,
        )

    def _match(
        self,
        view: RoundView,
        network: "_Halves",
        victim: int,
        rates: Tensor,
        known: Separated,
        shape: tuple[int, ...],
        generator: torch.Generator,
    ) -> Tensor:
        """``(M, *shape)`` images in [0, 1]."""
        from fedleak.modules.attackers.update_gaps import cosine_gap, total_variation

        model = {name: value[victim].float() for name, value in view.sent_models().items()}
        own = {name: model[name].requires_grad_() for name in network.front_parameters}
        received = {name: view.deltas[name][victim : victim + 1].float() / -float(rates[victim]) for name in own}
        features = known.inputs.float()
        signals = (known.errors @ model[f"{network.linear}.weight"].detach().double()).float() / len(features)
        images = torch.randn(len(features), *shape, generator=generator).requires_grad_()
        every = torch.ones(1, len(images), dtype=torch.bool)
        solver, end = torch.optim.Adam([images], lr=_STEP), time.monotonic() + 60 * self.minutes
        for iteration in range(self.max_iter):
            share = iteration / self.max_iter
            if time.monotonic() > end:
                break
            solver.param_groups[0]["lr"] = _STEP * max((1 + math.cos(math.pi * share)) / 2, 1e-3)
            width = _SMOOTHEST * (_SHARPEST / _SMOOTHEST) ** min(1.0, share / _SHARP)
            with torch.enable_grad():
                inferred = network.features(own, _MIDDLE + _SPREAD * images, width)
                gradients = torch.autograd.grad((inferred * signals).sum(), list(own.values()), create_graph=True)
                misfit = ((inferred - features).square().sum(1) / features.square().sum(1).clamp(min=1e-30)).sum()
                gap = cosine_gap({name: one[None] for name, one in zip(own, gradients, strict=True)}, received)
                loss = (misfit + gap + self.total_variation * total_variation(images[None], every)).sum()
                (images.grad,) = torch.autograd.grad(loss, images)
            images.grad.sign_()
            solver.step()
            images.data.clamp_(-_MIDDLE / _SPREAD, _MIDDLE / _SPREAD)
        return (_MIDDLE + _SPREAD * images.detach()).clamp(0, 1)


@dataclass(frozen=True, kw_only=True)
class UnrelatedSeparate(SeparateMatching):
    """Baseline: separate matching on the next client's update.

    What it reaches is due to the prior (total variation, range of pixels), not to the client's update.

    Threat model: a server that knows the network, not the examples, and has another client's update.

    References:
        This project.
    """

    name = "unrelated-separate"
    baseline = True
    control = True

    def run(self, view: RoundView, *, generator: torch.Generator) -> SeparatedImages:
        return super().run(decoupled(view, "update"), generator=generator)


@dataclass(frozen=True)
class _Halves:
    """A network before its first linear layer, and from it on.

    Attributes:
        front: layers before the first linear layer.
        back: that layer and those after it.
        algorithm: the clients' algorithm.
    """

    front: Chain
    back: Chain
    algorithm: ClassifierAlgorithm

    @classmethod
    def of(cls, view: RoundView) -> Self:
        """The halves of the clients' network.

        Raises:
            ViewError: it is no chain of known layers with a linear one after convolutions, or that one has no bias.
        """
        algorithm = view.require(ClassifierAlgorithm)
        chain = chain_of(algorithm.template) or []
        first = next((place for place, (_, layer) in enumerate(chain) if isinstance(layer, nn.Linear)), 0)
        front, back = chain[:first], chain[first:]
        if not any(isinstance(layer, nn.Conv2d) for _, layer in front):
            found = [type(layer).__name__ for _, layer in chain] or "another network"
            raise ViewError(
                "expected a chain of convolutions, ReLU, max-poolings and then linear layers, whose first one gets the"
                f" features of each image; got {found}"
            )
        pools = [layer for _, layer in front if isinstance(layer, nn.MaxPool2d)]
        if any(pool.padding not in (0, (0, 0)) or pool.dilation not in (1, (1, 1)) or pool.ceil_mode for pool in pools):
            raise ViewError(
                "expected max-poolings without padding and dilation, which the attack makes smooth; got others"
            )
        halves = cls(front, back, algorithm)
        needed = [f"{halves.linear}.weight", f"{halves.linear}.bias", *halves.front_parameters]
        missing = [name for name in needed if name not in view.deltas]
        if missing:
            raise ViewError(f"expected the updates of {', '.join(needed)}; got none of {', '.join(missing)}")
        return halves

    @property
    def linear(self) -> str:
        """Name of the first linear layer."""
        return self.back[0][0]

    @property
    def front_parameters(self) -> list[str]:
        """Names of the parameters before it."""
        return [f"{name}.{part}" for name, layer in self.front for part, _ in layer.named_parameters()]

    def features(self, model: Mapping[str, Tensor], images: Tensor, width: float) -> Tensor:
        """Inputs ``(M, D)`` of the first linear layer, with activations of a width in deviations of their inputs."""
        for name, layer in self.front:
            scale = width * images.detach().std().clamp(min=1e-12)
            if isinstance(layer, nn.ReLU):
                images = scale * functional.softplus(images / scale)
            elif isinstance(layer, nn.MaxPool2d):
                images = _smooth_maximum(images, layer, scale)
            else:
                images = _called(name, layer, model, images)
        return images

    def errors(self, model: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """``(M, K, N)`` gradients of the loss by the outputs of the first linear layer, by class."""
        (name, linear), *rest = self.back
        outputs = _called(name, linear, model, inputs).detach()
        classes = model[f"{self.algorithm.output_layer}.bias"].shape[0]
        with torch.enable_grad():
            repeated = outputs.repeat_interleave(classes, 0).requires_grad_()
            logits = repeated
            for own, layer in rest:
                logits = _called(own, layer, model, logits)
            labels = torch.arange(classes).repeat(len(inputs))
            (found,) = torch.autograd.grad(self.algorithm.criterion(logits, labels, reduction="sum"), repeated)
        return found.reshape(len(inputs), classes, -1)


def _called(name: str, layer: nn.Module, model: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """Outputs of one layer with the model's parameters."""
    own = {part: model[f"{name}.{part}"] for part, _ in layer.named_parameters()}
    outputs: Tensor = functional_call(layer, own, (inputs,))
    return outputs


def _smooth_maximum(images: Tensor, pool: nn.MaxPool2d, scale: Tensor) -> Tensor:
    """``s log sum exp(x / s)`` of each window of ``images (M, C, height, width)``."""
    count, channels = images.shape[:2]
    high, wide = pool(images.detach()).shape[2:]
    windows = functional.unfold(images.flatten(0, 1)[:, None], pool.kernel_size, stride=pool.stride)
    return (scale * torch.logsumexp(windows / scale, dim=1)).reshape(count, channels, high, wide)


def _step_sizes(view: RoundView) -> Tensor:
    """``(V,)`` size of each client's one step.

    Raises:
        ViewError: clients make several steps or no plain ones, or change their updates before they send them.
    """
    learner = view.require(ClassifierAlgorithm)
    sums = learner.step_sums(view.example_counts)
    if sums is None or bool((learner.steps(view.example_counts) != 1).any()):
        raise ViewError("expected one step of plain SGD on all examples of a client; got several, or other steps")
    if view.releases:
        raise ViewError("expected updates as they are; got clients that clip them or add noise")
    return sums
