"""Images of one step, matched with their own features before the first linear layer of a convolutional network."""

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from fedleak.attacks.reconstruction.gradient_matching import InvertingGradients, decoupled, image_shape
from fedleak.attacks.reconstruction.network_halves import NetworkHalves
from fedleak.attacks.reconstruction.separated_features import Separated, separate
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Scores
from fedleak.core.metric import Metric
from fedleak.core.progress import with_progress
from fedleak.core.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView, View

_SEPARATED = "separated"
_MIDDLE = 0.5
_SPREAD = 0.25
"""The solver works with standardised images, as in gradient matching: ``image = 0.5 + 0.25 z``."""
_STEP = 0.1
"""First learning rate of Adam on signs: the step of each standardised number, as in gradient matching."""
_SMOOTHEST = 0.5
_SHARPEST = 0.02
"""First and last width of the smooth activations, in standard deviations of their inputs."""
_SHARP = 0.75
"""Share of the iterations after which activations are sharpest."""


@dataclass(frozen=True, kw_only=True)
class SeparatedImages(ReconstructionEstimate):
    """Images, and how many of them were matched with features of their own.

    Attributes:
        separated: ``(V,)`` share of the client's images whose features were taken out of the update.
    """

    metrics = (
        *ReconstructionEstimate.metrics,
        Metric(
            _SEPARATED,
            "Separated is the share of a client's images whose features before the first linear layer were taken out of"
            " the update.",
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
        The objective on the convolutions is that of [Geiping20].

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import SeparateMatching
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("convolutions")
        >>> attack = SeparateMatching(max_iter=100, total_variation=0.002)
        >>> estimate = attack(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["psnr"].mean()) > 6
        True
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
        network = NetworkHalves.of(view)
        shape = image_shape(view)
        rates = step_sizes(view)
        separated = [self._separate(view, network, victim, rates, generator) for victim in range(view.victims)]
        images: dict[int, tuple[Tensor, Tensor]] = {}  # and their classes, by client
        for victim in with_progress([v for v, features in enumerate(separated) if features.complete]):
            records = self._match(view, network, victim, rates, separated[victim], shape, generator)
            images[victim] = records, separated[victim].classes
        # Clients of which not all images could be separated are matched by gradients only.
        rest = [victim for victim in range(view.victims) if victim not in images]
        if rest:
            plain_matching = InvertingGradients(
                max_iter=self.max_iter,
                total_variation=self.total_variation,
                minutes=self.minutes,
            )
            plain = plain_matching.run(view.select(torch.tensor(rest, dtype=torch.int64)), generator=generator)
            for row, victim in enumerate(rest):
                count = int(plain.count[row])
                images[victim] = plain.records[row, :count], plain.labels[row, :count]
        records_and_labels = [images[victim] for victim in range(view.victims)]
        estimate = reconstruction(
            [records for records, _ in records_and_labels],
            labels=[labels for _, labels in records_and_labels],
        )
        separated_counts = [len(features.classes) for features in separated]
        shares = separated_counts / view.example_counts.clamp(min=1).double().numpy()
        return SeparatedImages(**vars(estimate), separated=torch.from_numpy(shares))

    def _separate(
        self, view: RoundView, network: NetworkHalves, victim: int, rates: Tensor, generator: torch.Generator
    ) -> Separated:
        model = {name: value[victim].double() for name, value in view.sent_models().items()}
        decay = view.require(ClassifierAlgorithm).decay_change(model, view.example_counts[victim : victim + 1])
        # The mean gradient: the update without weight decay, over minus the learning rate.
        gradients = []
        for name in (f"{network.linear}.weight", f"{network.linear}.bias"):
            without_decay = view.deltas[name][victim].double() - decay[name].reshape(model[name].shape)
            gradients.append(without_decay / -rates[victim])
        weight, bias = gradients
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
        network: NetworkHalves,
        victim: int,
        rates: Tensor,
        separated: Separated,
        shape: tuple[int, ...],
        generator: torch.Generator,
    ) -> Tensor:
        """``(M, *shape)`` images in [0, 1]."""
        from fedleak.modules.attackers.update_gaps import cosine_gap, total_variation

        model = {name: value[victim].float() for name, value in view.sent_models().items()}
        parameters = {name: model[name].requires_grad_() for name in network.front_parameters}
        received = {}
        for name in parameters:
            received[name] = view.deltas[name][victim : victim + 1].float() / -float(rates[victim])
        features = separated.inputs.float()
        # Gradient of the mean loss by each image's features: the errors at the linear layer, through its weights.
        weight = model[f"{network.linear}.weight"].detach().double()
        signals = (separated.errors @ weight).float() / len(features)
        images = torch.randn(len(features), *shape, generator=generator).requires_grad_()
        is_image = torch.ones(1, len(images), dtype=torch.bool)
        solver = torch.optim.Adam([images], lr=_STEP)
        end = time.monotonic() + 60 * self.minutes
        for iteration in range(self.max_iter):
            share = iteration / self.max_iter
            if time.monotonic() > end:
                break
            # Steps fall as a half cosine, and activations get sharp geometrically.
            solver.param_groups[0]["lr"] = _STEP * max((1 + math.cos(math.pi * share)) / 2, 1e-3)
            width = _SMOOTHEST * (_SHARPEST / _SMOOTHEST) ** min(1.0, share / _SHARP)
            with torch.enable_grad():
                inferred = network.features(parameters, _MIDDLE + _SPREAD * images, width)
                # sum_i f(x_i).s_i has the gradient of the loss by the parameters of the convolutions.
                of_parameters = torch.autograd.grad(
                    (inferred * signals).sum(), list(parameters.values()), create_graph=True
                )
                gradients = {name: value[None] for name, value in zip(parameters, of_parameters, strict=True)}
                # sum_i |f(x_i) - f_i|^2 / |f_i|^2 + 1 - cos + w TV
                squared_error = (inferred - features).square().sum(1)
                misfit = (squared_error / features.square().sum(1).clamp(min=1e-30)).sum()
                gap = cosine_gap(gradients, received)
                loss = (misfit + gap + self.total_variation * total_variation(images[None], is_image)).sum()
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

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import UnrelatedSeparate
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("convolutions")
        >>> estimate = UnrelatedSeparate(max_iter=20)(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["psnr"].mean()) < 12
        True
    """

    name = "unrelated-separate"
    baseline = True
    control = True

    def run(self, view: RoundView, *, generator: torch.Generator) -> SeparatedImages:
        return super().run(decoupled(view, "update"), generator=generator)


def step_sizes(view: RoundView) -> Tensor:
    """``(V,)`` size of each client's one step.

    Raises:
        ViewError: clients make several steps or no plain ones, or change their updates before they send them.
    """
    learner = view.require(ClassifierAlgorithm)
    rates = learner.step_sums(view.example_counts)
    makes_several = bool((learner.steps(view.example_counts) != 1).any())
    if rates is None or makes_several:
        raise ViewError("expected one step of plain SGD on all examples of a client; got several, or other steps")
    if view.releases:
        raise ViewError("expected updates as they are; got clients that clip them or add noise")
    return rates
