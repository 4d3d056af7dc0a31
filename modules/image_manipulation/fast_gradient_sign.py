"""Fast gradient sign method as an image manipulation, by foolbox; RAIFLE's baseline.

References:
    I. J. Goodfellow, J. Shlens and C. Szegedy, "Explaining and Harnessing Adversarial Examples", ICLR 2015,
    arXiv:1412.6572.
    Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163, section V.C.4.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import foolbox
import torch
from torch import Tensor, nn

from modules.image_manipulation.base import ImageManipulation
from modules.image_manipulation.feature_extractor import FeatureExtractor
from protocol.ranges import OpenUnitInterval

Variant = Literal["corrected", "as-published-code"]
_BOUNDS = (-2.65, 2.65)
"""Bounds of normalised pixels in the published code."""


@dataclass(frozen=True, kw_only=True)
class FastGradientSign(ImageManipulation):
    """One gradient sign step away from the class of each image.

    Args:
        epsilon: change of every pixel, in (0, 1).
        variant: ``corrected``: of pixels in [0, 1], which stay valid, as the paper describes; ``as-published-code``: of
            normalised pixels, about 0.0225 of pixels in [0, 1], between -2.65 and 2.65.
    """

    name: ClassVar[str] = "fgsm"

    epsilon: OpenUnitInterval = 0.1
    variant: Variant = "corrected"

    def perturb(
        self,
        extractor: FeatureExtractor,
        pixels: Tensor,
        numbers: Tensor,
        *,
        partitions: int,
        seed: int,
        labels: Tensor | None = None,
    ) -> Tensor:
        return fast_gradient_sign(extractor, pixels, labels, epsilon=self.epsilon, variant=self.variant)


class _Classifier(nn.Module):
    """Network with its classifier, on pixels in [0, 1] or normalised ones."""

    def __init__(self, extractor: FeatureExtractor, *, normalised: bool) -> None:
        super().__init__()
        self.extractor, self.normalised = extractor, normalised

    def forward(self, images: Tensor) -> Tensor:
        return self.extractor.logits(self.extractor.restore(images) if self.normalised else images)


def fast_gradient_sign(
    extractor: FeatureExtractor,
    pixels: Tensor,
    labels: Tensor | None = None,
    *,
    epsilon: float,
    variant: Variant = "corrected",
) -> Tensor:
    """Images after one gradient sign step away from their class.

    Args:
        extractor: the network; it must have a classifier.
        pixels: ``(N, 3, h, w)`` in [0, 1].
        labels: ``(N,)`` true classes of the classifier; None, or -1 for an image, for the predicted ones.
        epsilon: see `FastGradientSign`.
        variant: see `FastGradientSign`.

    Returns:
        ``(N, 3, h, w)``, in [0, 1] if `corrected`.
    """
    normalised = variant == "as-published-code"
    classifier = _Classifier(extractor, normalised=normalised).eval()
    network = foolbox.PyTorchModel(classifier, bounds=_BOUNDS if normalised else (0, 1), device=pixels.device)
    with torch.no_grad():
        predicted = extractor.logits(pixels).argmax(1)
    known = predicted if labels is None else labels.to(predicted).where(labels.to(predicted) >= 0, predicted)
    images = extractor.normalise(pixels) if normalised else pixels
    with torch.enable_grad():
        _, (found,), _ = foolbox.attacks.FGSM()(network, images, known, epsilons=[epsilon])
    perturbed: Tensor = found.detach()
    return extractor.restore(perturbed) if normalised else perturbed
