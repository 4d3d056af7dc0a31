"""Fast gradient sign method as an image manipulation, by foolbox; RAIFLE's baseline."""

from dataclasses import dataclass
from typing import Literal

import foolbox
import torch
from torch import Tensor, nn

from fedleak.client.feature_extractor import FeatureExtractor
from fedleak.core.ranges import OpenUnitInterval
from fedleak.server.deviation import Notice
from fedleak.server.image_manipulation import ImageManipulation

_BOUNDS = (-2.65, 2.65)
"""Bounds of normalised pixels in the published code."""


@dataclass(frozen=True, kw_only=True)
class FastGradientSign(ImageManipulation):
    """One gradient sign step away from the class of each image: that of the data if known, else the predicted one.

    Args:
        epsilon: change of every pixel, in (0, 1).
        variant: ``corrected``: of pixels in [0, 1], which stay valid, as the paper describes; ``as-published-code``: of
            normalised pixels, about 0.0225 of pixels in [0, 1], between -2.65 and 2.65.

    References:
        [Goodfellow15].
        [Pham25], section V.C.4.
    """

    name = "fgsm"
    does = "changes every pixel of the images by one gradient sign step"
    noticed = (Notice("client", "images that are unlike their originals, where it has them (SSIM, PSNR)"),)
    references = ("Goodfellow15", "Pham25, section V.C.4")

    epsilon: OpenUnitInterval = 0.1
    variant: Literal["corrected", "as-published-code"] = "corrected"

    def perturb(
        self, extractor: FeatureExtractor, pixels: Tensor, *, targets: Tensor | None, labels: Tensor | None
    ) -> Tensor:
        normalised = self.variant == "as-published-code"
        bounds = (0.0, 1.0)
        images = pixels
        if normalised:
            bounds = _BOUNDS
            images = extractor.normalise(pixels)
        classifier = _Classifier(extractor, normalised=normalised).eval()
        network = foolbox.PyTorchModel(classifier, bounds=bounds, device=pixels.device)
        # The class to step away from: that of the data, or where it is unknown (-1) the predicted one.
        with torch.no_grad():
            classes = extractor.logits(pixels).argmax(1)
        if labels is not None:
            classes = labels.to(classes).where(labels.to(classes) >= 0, classes)
        with torch.enable_grad():
            _, (adversarial,), _ = foolbox.attacks.FGSM()(network, images, classes, epsilons=[self.epsilon])
        perturbed: Tensor = adversarial.detach()
        if normalised:
            return extractor.restore(perturbed)
        return perturbed


class _Classifier(nn.Module):
    """Network with its classifier, on pixels in [0, 1] or normalised ones."""

    def __init__(self, extractor: FeatureExtractor, *, normalised: bool) -> None:
        super().__init__()
        self.extractor = extractor
        self.normalised = normalised

    def forward(self, images: Tensor) -> Tensor:
        pixels = self.extractor.restore(images) if self.normalised else images
        return self.extractor.logits(pixels)
