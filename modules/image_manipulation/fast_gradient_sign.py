"""Fast gradient sign method as an image manipulation, by foolbox; RAIFLE's baseline.

References:
    I. J. Goodfellow, J. Shlens and C. Szegedy, "Explaining and Harnessing Adversarial Examples", ICLR 2015,
    arXiv:1412.6572.
    Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163, section V.C.4.
"""

from dataclasses import dataclass
from typing import ClassVar

import foolbox
import torch
from torch import Tensor, nn

from modules.image_manipulation.base import ImageManipulation
from modules.image_manipulation.feature_extractor import FeatureExtractor
from protocol.ranges import OpenUnitInterval


@dataclass(frozen=True, kw_only=True)
class FastGradientSign(ImageManipulation):
    """One gradient sign step away from the predicted class of each image.

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
    """Network with its classifier, on pixels in [0, 1]."""

    def __init__(self, extractor: FeatureExtractor) -> None:
        super().__init__()
        self.extractor = extractor

    def forward(self, pixels: Tensor) -> Tensor:
        return self.extractor.logits(pixels)


def fast_gradient_sign(extractor: FeatureExtractor, pixels: Tensor, *, epsilon: float) -> Tensor:
    """Images after one gradient sign step away from the predicted class.

    The published code uses true labels; here the labels are the network's predictions, because true labels are unknown
    for a sample of ImageNet's classes or a network with other classes.

    Args:
        extractor: the network; it must have a classifier.
        pixels: ``(N, 3, h, w)`` in [0, 1].
        epsilon: change of every pixel, in [0, 1]. Published: 0.1 of normalised pixels, about 0.0225 here.

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
