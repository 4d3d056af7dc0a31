"""Gradient matching by a server that knows how the clients' training is defended."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.gradient_matching import InvertingGradients, MatchedImages, decoupled, image_shape
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.bottleneck import Bottleneck
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

if TYPE_CHECKING:
    from fedleak.modules.attackers.image_matching import Unknown

_OWN = 2.0
"""First logit of an image's own weight in its mixture; those of the others are near 0, so its weight is about 0.7."""
_SPAN = 8.0
"""Bound of a logit: of two that are 16 apart, the smaller one's weight is 1e-7, the precision of float32."""


@dataclass(frozen=True, kw_only=True)
class InformedMatching(InvertingGradients):
    """Gradient matching that knows the defence: gradients that it spoils are left out, its random numbers searched too.

    Without these defences it is `inverting-gradients`. With

    * Soteria, the weight that Soteria changes is not compared.
    * PRECODE, the bottleneck and the last layer, whose gradients the noise enters directly, are not compared.
    * PRECODE and dropout, the noise or the factors of each image are optimised with it, from their expectation.
    * mixup, each image of the step is a mean of the images, with weights that are the softmax of optimised logits, and
      the labels are the same means.

    Threat model: passive server, one round; knows the network and the defences of the clients' training, not their
    random numbers.

    Args:
        omit: whether the gradients above are left out.
        search: whether the random numbers are optimised.

    References:
        [Balunovic22] (Soteria); [Scheliga22a] (PRECODE); the same, [Scheliga23] (dropout). Only their abstracts and
        beginnings could be read. The search of the mixture is this project's.
    """

    name = "informed-matching"
    references: ClassVar[tuple[str, ...]] = (
        "Bayesian Framework for Gradient Leakage",
        "Dropout is NOT All You Need to Prevent Gradient Leakage",
    )
    threat_model = ThreatModel(
        sees="the update of the whole model",
        knows="the clients' training algorithm and its defences",
        needs=("deltas", "model", ImageClassifierAlgorithm),
    )

    omit: bool = True
    search: bool = True

    def leave_out(self, view: RoundView) -> Collection[str]:
        algorithm = view.require(ImageClassifierAlgorithm)
        if not self.omit:
            return ()
        spoiled = set[str]()
        if algorithm.soteria is not None:
            spoiled.add(f"{algorithm.output_layer}.weight")
        # The noise of a bottleneck enters its own gradients, and those of the layer that reads its output.
        layers = [name for name, layer in algorithm.template.named_modules() if isinstance(layer, Bottleneck)]
        if layers:
            layers.append(algorithm.output_layer)
        for name in view.deltas:
            if any(name.startswith(f"{layer}.") for layer in layers):
                spoiled.add(name)
        return spoiled

    def unknown(self, view: RoundView, labels: Tensor, generator: torch.Generator) -> "dict[str, Unknown]":
        from fedleak.modules.attackers.image_matching import MIXING, Unknown

        algorithm = view.require(ImageClassifierAlgorithm)
        if not self.search:
            return {}
        unknowns = {}
        for name, (layer, shape) in algorithm.noise_shapes(torch.zeros(2, *image_shape(view))).items():
            start = torch.full((*labels.shape, *shape), layer.expectation)
            unknowns[name] = Unknown(start, layer.span)
        if algorithm.mixup is not None:
            # Logits of the weights of each image's mixture: its own one leads, the others start at random near 0.
            size = (*labels.shape, labels.shape[1])
            start = _OWN * torch.eye(labels.shape[1]) + torch.rand(size, generator=generator)
            unknowns[MIXING] = Unknown(start, (-_SPAN, _SPAN))
        return unknowns


@dataclass(frozen=True, kw_only=True)
class UnrelatedInformed(InformedMatching):
    """Baseline: informed matching on the update of the next client in the view.

    What it reaches is due to the prior (total variation, range of pixels) and to the labels, not to the update.

    Threat model: as of `InformedMatching`, but of a server that has another client's update.

    References:
        This project.
    """

    name = "unrelated-informed"
    references = ()
    baseline = True
    control = True

    def run(self, view: RoundView, *, generator: torch.Generator) -> MatchedImages:
        return super().run(decoupled(view, "update"), generator=generator)
