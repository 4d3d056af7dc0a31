"""Gradient matching: images whose simulated update is similar to the received one."""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from fedleak.attacks.composition.output_counts import class_counts
from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate
from fedleak.attacks.reconstruction.linear_layer import check_no_head
from fedleak.client.network import NetworkAlgorithm
from fedleak.core.errors import InputError, ViewError
from fedleak.core.estimates import Estimate, Scores
from fedleak.core.metric import Metric
from fedleak.core.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView, View

if TYPE_CHECKING:
    from fedleak.modules.attackers.image_matching import Unknown

_SIGNAL = "signal"
_REACHED = "matched"
_STEP = 0.1
"""First step of each number of a standardised image, as published."""


@dataclass(frozen=True, kw_only=True)
class MatchedImages(ReconstructionEstimate):
    """Images found by gradient matching, and how well their update agrees with the received one.

    Attributes:
        signal: ``(V,)`` predicted cosine of the received update and the one before the noise, which the true images
            would reach.
        matched: ``(V,)`` cosine that the images reach.
        iterations: iterations that were made, and that were asked for.
        seconds: time that they took.
    """

    metrics: ClassVar[tuple[str | Metric, ...]] = (
        *ReconstructionEstimate.metrics,
        Metric(
            _SIGNAL,
            "Signal is the predicted cosine of an update with noise and the same without, 1 without noise.",
            leak=False,
            span=(0.0, 1.0),
        ),
        Metric(
            _REACHED,
            "Matched is the cosine of the received update and that of the images found; above the signal, the images"
            " fit the noise.",
            leak=False,
            span=(-1.0, 1.0),
        ),
    )
    signal: Tensor
    matched: Tensor
    iterations: tuple[int, int]
    seconds: float

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        scores = super().score(view, truth)
        iterations_made, iterations_asked = self.iterations
        row = {
            "clients": view.victims,
            "iterations": iterations_made,
            "asked for": iterations_asked,
            "finished": iterations_made >= iterations_asked,
            "seconds": round(self.seconds, 1),
            "predicted cosine": float(self.signal.mean()),
            "reached cosine": float(self.matched.mean()),
        }
        metrics = {**scores.metrics, _SIGNAL: self.signal, _REACHED: self.matched}
        return dataclasses.replace(scores, metrics=metrics, details=[*scores.details, row])


@dataclass(frozen=True, kw_only=True)
class GradientMatching(ReconstructionAttack):
    """Base class of gradient matching: labels from the last layer, images by optimisation.

    Args:
        max_iter: iterations of each start.
        restarts: random starts, of which the best match of each victim is kept.
        total_variation: weight of the total variation of the images, standardised by 0.5 and 0.25.
        minutes: time limit of a view. Steps decay by the time that is used, and what is found then is returned.
        accelerator: Lightning accelerator.
    """

    audited_victims = 4
    slow = True
    estimates: ClassVar[type[Estimate]] = MatchedImages
    cost = "minutes per victim"
    threat_model = ThreatModel(
        sees="the update of the whole model",
        knows="the clients' training algorithm",
        needs=("deltas", "model", NetworkAlgorithm),
    )

    simulate: ClassVar[bool] = False
    objective: ClassVar[Literal["cosine", "euclidean"]] = "cosine"
    solver: ClassVar[Literal["signed-adam", "lbfgs"]] = "signed-adam"

    max_iter: PositiveInt = 24_000
    restarts: PositiveInt = 1
    total_variation: NonNegativeFloat = 0.0
    minutes: PositiveFloat = 10.0
    accelerator: str = "auto"

    def run(self, view: RoundView, *, generator: torch.Generator) -> MatchedImages:
        from fedleak.modules.attackers.image_matching import ImageMatching
        from fedleak.modules.attackers.trainer import fit_quietly

        # Labels first, from the last layer's update: they and their number are fixed while images are searched.
        counts = class_counts(view, generator=generator)
        labels = labels_of(counts)
        try:
            module = ImageMatching(
                view,
                labels,
                shape=image_shape(view),
                generator=generator,
                simulate=self.simulate,
                objective=self.objective,
                solver=self.solver,
                total_variation=self.total_variation,
                step=_STEP,
                max_iter=self.max_iter,
                restarts=self.restarts,
                seconds=60 * self.minutes,
                leave_out=self.leave_out(view),
                unknown=self.unknown(view, labels, generator),
            )
            fit_quietly(module, accelerator=self.accelerator, max_epochs=1)
        except InputError as error:  # the clients' local training cannot be differentiated
            raise ViewError(str(error)) from None
        module = module.cpu()
        return MatchedImages(
            records=module.found(),
            labels=labels,
            certified=torch.zeros_like(labels, dtype=torch.bool),
            count=counts.sum(1),
            signal=predicted_cosine(view),
            matched=module.cosines,
            iterations=(module.iterations, self.max_iter * self.restarts),
            seconds=module.elapsed,
        )

    def leave_out(self, view: RoundView) -> Collection[str]:
        """Parameters whose gradients are not compared."""
        return ()

    def unknown(self, view: RoundView, labels: Tensor, generator: torch.Generator) -> "dict[str, Unknown]":
        """Random numbers of the clients' step that are searched together with the images, see `ImageMatching`."""
        return {}


@dataclass(frozen=True, kw_only=True)
class InvertingGradients(GradientMatching):
    """Inverting Gradients: cosine of the gradients and total variation, by Adam on signs.

    The update is taken for one gradient of all examples, whatever the number of local steps; `FedAvgMatching` simulates
    them. Steps of 0.1 are divided by ten after 3/8, 5/8 and 7/8 of the iterations, as published. Labels are those of
    `OutputCounts`.

    Threat model: passive server, one round; knows the network, not the examples.

    Args:
        total_variation: as in the authors' present code; their first publication used half of it.
        max_iter: 24,000 as published.

    References:
        [Geiping20], equation 4.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import InvertingGradients
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("smooth")
        >>> attack = InvertingGradients(accelerator="cpu", max_iter=100, total_variation=0.002)
        >>> estimate = attack(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["psnr"].mean()) > 15
        True
    """

    name = "inverting-gradients"
    references: ClassVar[tuple[str, ...]] = ("Inverting Gradients, equation 4",)

    total_variation: NonNegativeFloat = 0.2


@dataclass(frozen=True, kw_only=True)
class DeepLeakage(GradientMatching):
    """Deep Leakage from Gradients: squared distance of the gradients, by L-BFGS.

    The publication optimises the labels too; here they are those of `OutputCounts`, as in iDLG, where one image's label
    comes from the last layer. It needs smooth activations: with ReLU the second derivative is zero almost everywhere.

    Threat model: passive server, one round; knows the network, not the examples.

    Args:
        max_iter: iterations of L-BFGS (published: 300 calls of 20).

    References:
        [Zhu19], algorithm 1; [Zhao20].

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import DeepLeakage
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("smooth")
        >>> attack = DeepLeakage(accelerator="cpu", max_iter=100)
        >>> estimate = attack(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["psnr"].mean()) > 40
        True
    """

    name = "dlg"
    references = ("Zhu19, algorithm 1",)
    objective = "euclidean"
    solver = "lbfgs"

    max_iter: PositiveInt = 1200


@dataclass(frozen=True, kw_only=True)
class FedAvgMatching(InvertingGradients):
    """Gradient matching through all local steps: the server simulates the clients' training on the images.

    Where mini-batches are shuffled, the server does not know the order and simulates one of its own, which differs
    between starts. It is exact for full batches, and for one epoch up to the labels of each batch.

    Threat model: passive server, one round; knows the network and all hyper-parameters of local training.

    References:
        [Geiping20], section 6; [Dimitrov22].

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import FedAvgMatching
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("smooth")
        >>> attack = FedAvgMatching(accelerator="cpu", max_iter=100, total_variation=0.002)
        >>> estimate = attack(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["psnr"].mean()) > 15
        True
    """

    name = "fedavg-matching"
    references = ("Geiping20, section 6", "Dimitrov22")
    simulate = True


@dataclass(frozen=True, kw_only=True)
class UnrelatedUpdate(InvertingGradients):
    """Baseline: inverting gradients on an update that is not the client's.

    What it reaches is due to the prior (total variation, range of pixels) and to the labels, not to the update.

    Threat model: a server that knows the network, not the examples, and has another client's update or another model.

    Args:
        unrelated: ``update`` of the next client in the view, or the client's own update with a ``model`` of random
            weights.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import UnrelatedUpdate
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("smooth")
        >>> attack = UnrelatedUpdate(accelerator="cpu", max_iter=100)
        >>> estimate = attack(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["psnr"].mean()) < 12
        True
    """

    name = "unrelated-update"
    references = ()
    baseline = True
    control = True

    unrelated: Literal["update", "model"] = "update"

    def run(self, view: RoundView, *, generator: torch.Generator) -> MatchedImages:
        return super().run(decoupled(view, self.unrelated), generator=generator)


def decoupled(view: RoundView, unrelated: Literal["update", "model"]) -> RoundView:
    """The view with another client's updates, or with permuted weights of the global model."""
    if unrelated == "update":
        if view.victims < 2:
            raise ViewError("expected two clients or more, whose updates can be exchanged; got one")
        return dataclasses.replace(view, deltas={name: value.roll(1, 0) for name, value in view.deltas.items()})
    # Weights in a random order have the same distribution, and nothing to do with the update.
    draws = generator_for(0, "foreign model", PERSISTENT)
    model = {}
    for name, value in view.model.items():
        order = torch.randperm(value.numel(), generator=draws)
        model[name] = value.flatten()[order].reshape(value.shape)
    return dataclasses.replace(view, model=model, client_models=None)


def labels_of(counts: Tensor) -> Tensor:
    """``(V, M)`` classes in ascending order of clients with ``counts (V, K)``, padded with -1."""
    # Image m has the first class whose cumulative count exceeds m.
    images = torch.arange(int(counts.sum(1).max()))
    classes = torch.searchsorted(counts.cumsum(1), images.expand(len(counts), -1).contiguous(), right=True)
    return classes.masked_fill(images >= counts.sum(1, keepdim=True), -1)


def image_shape(view: RoundView) -> tuple[int, ...]:
    """Shape of the images that the network takes: of its description, or of the adversary's own images.

    Raises:
        ViewError: neither gives it, or the clients do not train on images.
    """
    check_no_head(view)
    shape = getattr(view.algorithm, "image_shape", None)
    if shape is None and "images" in view.auxiliary:
        shape = view.auxiliary["images"].shape[1:]
    if shape is None or len(shape) != 3:
        raise ViewError(f"expected clients that train on images of a known shape, got {shape}; give auxiliary images")
    return tuple(shape)


def predicted_cosine(view: RoundView) -> Tensor:
    """``(V,)`` cosine of each received update and the same without noise, from the public scale of the noise.

    The squared length of an update with noise is that of the update plus ``sum s^2`` on average.
    """
    squares = [value.double().flatten(1).square().sum(1) for value in view.deltas.values()]
    received_square = torch.stack(squares).sum(0)
    noise_square = sum(view.noise_scale(name) ** 2 * value[0].numel() for name, value in view.deltas.items())
    # cos = |update| / |update + noise|, as the noise is orthogonal to the update on average.
    return (1 - noise_square / received_square.clamp(min=1e-30)).clamp(0, 1).sqrt()
