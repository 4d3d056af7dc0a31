"""The fast gradient sign method (Goodfellow et al. 2015), by foolbox: RAIFLE's baseline of section V.C.4."""

from dataclasses import dataclass
from typing import ClassVar

import foolbox
import torch
from torch import Tensor, nn

from modules.image_manipulation.base import ImageManipulation
from modules.image_manipulation.feature_extractor import FeatureExtractor
from ranges import OpenUnitInterval


@dataclass(frozen=True, kw_only=True)
class FastGradientSign(ImageManipulation):
    """Images one step away from what the network takes each for; see `fast_gradient_sign`.

    Args:
        epsilon: change of every pixel, in (0, 1).
    """

    name: ClassVar[str] = "fgsm"

    epsilon: OpenUnitInterval = 0.1

    def perturb(
        self, extractor: FeatureExtractor, pixels: Tensor, numbers: Tensor, *, partitions: int, seed: int
    ) -> Tensor:
        return fast_gradient_sign(extractor, pixels, epsilon=self.epsilon)


class _Whole(nn.Module):
    """The network with its classifier, of pixels in [0, 1]."""

    def __init__(self, extractor: FeatureExtractor) -> None:
        super().__init__()
        self.extractor = extractor

    def forward(self, pixels: Tensor) -> Tensor:
        return self.extractor.logits(pixels)


def fast_gradient_sign(extractor: FeatureExtractor, pixels: Tensor, *, epsilon: float) -> Tensor:
    """One step away from what the network takes each image for.

    The labels are the network's own, where the published code takes the true ones: those of a sample of ImageNet's
    classes, or of a network of other classes, are not known.

    Args:
        extractor: the network; it must have a classifier.
        pixels: ``(N, 3, h, w)`` in [0, 1].
        epsilon: change of every pixel, in [0, 1]. Published: 0.1 of normalised pixels, some 0.0225 here.

    Returns:
        ``(N, 3, h, w)`` in [0, 1].
    """
    network = foolbox.PyTorchModel(_Whole(extractor).eval(), bounds=(0, 1), device=pixels.device)
    with torch.no_grad():
        labels = extractor.logits(pixels).argmax(1)
    with torch.enable_grad():
        _, (found,), _ = foolbox.attacks.FGSM()(network, pixels, labels, epsilons=[epsilon])
    perturbed: Tensor = found.detach()
    return perturbed
