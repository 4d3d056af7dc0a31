"""Indirect manipulation: images whose features approach a target, for clients that extract features themselves.

Adam changes the pixels until the features are close to rectified noise. The similarity penalty and the bound on the
change of each pixel are future work in the paper (appendix B).

References:
    [Pham25], sections III.C.3 and IV.C and appendix B.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedleak.client.feature_extractor import FeatureExtractor
from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, check_fields
from fedleak.core.seeding import generator_for
from fedleak.server.deviation import Notice
from fedleak.server.image_manipulation import ImageManipulation, psnr, ssim

_BEST_PSNR = 60.0
"""PSNR in dB above which the penalty is zero; the PSNR of equal images is infinite."""


@dataclass(frozen=True, kw_only=True)
class PixelSearch:
    """Options of the search for pixels.

    Attributes:
        steps: steps of Adam (the paper: 500).
        learning_rate: learning rate of Adam, on normalised pixels (the paper: 0.01).
        enough: mean squared feature error at which the search of a batch stops (published code: 0.001).
        likeness: similarity to the original that is penalised next to the feature error, None as in the paper.
        likeness_weight: weight of ``1 - ssim``, or of ``-psnr`` in dB, in the loss.
        budget: largest change of a pixel in [0, 1], None for no bound.
        variant: ``corrected``: the loss is a sum over the images and the best iterate of each is sent, so that an
            image does not depend on its batch; ``as-published-code``: the loss is a mean over the batch, whose smaller
            gradients Adam's epsilon damps, `enough` applies to that mean, and the last iterate is sent.
    """

    steps: PositiveInt = 500
    learning_rate: PositiveFloat = 0.01
    enough: NonNegativeFloat = 1e-3
    likeness: Literal["ssim", "psnr"] | None = None
    likeness_weight: NonNegativeFloat = 0.0
    budget: float | None = None
    variant: Literal["corrected", "as-published-code"] = "corrected"

    def __post_init__(self) -> None:
        check_fields(self)
        within = self.budget is None or 0 < self.budget <= 1
        require(within, "a budget above 0 and up to 1", self.budget, "8 / 255 is hard to see.")


@dataclass(frozen=True, kw_only=True)
class FeatureNoise(ImageManipulation):
    """Images whose features approach rectified noise in one part and zero in the other parts.

    Args:
        scale: standard deviation of the noise (the paper: 4).
        search: options of the search for pixels.
    """

    name = "noise"
    does = "changes the pixels of images until the features that clients extract are noise"
    noticed = (
        Notice("client", "images that are unlike their originals, where it has them (SSIM, PSNR)"),
        Notice("auditor", "noise in the features of the images sent, in place of those of the originals"),
    )
    references = ("Pham25, sections III.C.3 and IV.C",)

    scale: PositiveFloat = 4.0
    search: PixelSearch = PixelSearch()

    def perturb(
        self, extractor: FeatureExtractor, pixels: Tensor, *, targets: Tensor | None, labels: Tensor | None
    ) -> Tensor:
        assert targets is not None
        return manipulate(extractor, pixels, targets.to(pixels), self.search)

    def targets(self, numbers: Tensor, features: int, *, partitions: int, seed: int) -> Tensor:
        drawn = []
        for number in numbers.tolist():
            part = torch.tensor([number % partitions])
            generator = generator_for(seed, "feature target", number)
            drawn.append(self._noise(part, features, partitions, generator))
        return torch.cat(drawn)

    def drawn(self, items: int, features: int, *, partitions: int, generator: torch.Generator) -> Tensor:
        return self._noise(partition_of(items, partitions), features, partitions, generator)

    def _noise(self, part: Tensor, features: int, partitions: int, generator: torch.Generator) -> Tensor:
        return partitioned_noise(part, features, partitions=partitions, scale=self.scale, generator=generator)


def partition_of(items: int, partitions: int) -> Tensor:
    """``(R,)`` part with the noise of each of a client's items: the first items have the first part, and so on."""
    return torch.arange(items) * partitions // items


def partitioned_noise(
    part: Tensor, features: int, *, partitions: int, scale: float, generator: torch.Generator
) -> Tensor:
    """``(R, F)`` max(0, N(0, scale^2)) in one part of the features, ``part (R,)`` of each item, and zero in the others.

    The features are divided evenly into parts; 1 part is noise in all features. A scale of 4 is the end of the paper's
    grid search.

    Raises:
        ValueError: there are more parts than features, or a number is not positive.
    """
    if not 1 <= partitions <= features or not scale > 0:
        raise ValueError(f"expected 1 to {features} partitions and scale > 0, got {partitions} and {scale}")
    noise = torch.randn(len(part), features, generator=generator).mul(scale).clamp(min=0)
    is_in_part = partition_of(features, partitions) == part[:, None]
    return noise * is_in_part


def manipulate(extractor: FeatureExtractor, pixels: Tensor, targets: Tensor, search: PixelSearch) -> Tensor:
    """Images ``(N, 3, h, w)`` in [0, 1], optimised until their features are close to targets ``(N, F)``.

    With the variant ``corrected``, images are independent except for the number of steps: the search stops when all are
    close enough.
    """
    published = search.variant == "as-published-code"
    # Bounds of the normalised pixels: in [0, 1], and at most the budget away from the original.
    budget = 1.0 if search.budget is None else search.budget
    lowest = extractor.normalise((pixels - budget).clamp(min=0))
    highest = extractor.normalise((pixels + budget).clamp(max=1))
    inputs = extractor.normalise(pixels).clone().requires_grad_()
    best_inputs = inputs.detach().clone()
    best_losses = torch.full((len(pixels),), torch.inf).to(pixels)
    optimizer = torch.optim.Adam([inputs], lr=search.learning_rate)
    # One evaluation more than steps, so that the last iterate is judged too.
    for step in range(search.steps + 1):
        with torch.enable_grad():
            feature_errors = (extractor.of_inputs(inputs) - targets).square().mean(1)
            losses = feature_errors + _unlikeness(extractor.restore(inputs), pixels, search)
            total = losses.mean() if published else losses.sum()
        is_better = losses.detach() < best_losses
        best_losses = torch.where(is_better, losses.detach(), best_losses)
        best_inputs = torch.where(is_better[:, None, None, None], inputs.detach(), best_inputs)
        is_near = bool((feature_errors <= search.enough).all())
        if step == search.steps or (is_near and not published):
            break
        (inputs.grad,) = torch.autograd.grad(total, inputs)
        optimizer.step()
        with torch.no_grad():
            inputs.clamp_(lowest, highest)
        # The published code steps once more before it stops.
        if published and float(feature_errors.detach().mean()) < search.enough:
            break
    sent = inputs.detach() if published else best_inputs
    return extractor.restore(sent).clamp(0, 1)


def _unlikeness(images: Tensor, originals: Tensor, search: PixelSearch) -> Tensor:
    """``(N,)`` similarity penalties."""
    if search.likeness is None or not search.likeness_weight:
        return torch.zeros(len(originals)).to(originals)
    if search.likeness == "ssim":
        return search.likeness_weight * (1 - ssim(images, originals))
    return search.likeness_weight * (_BEST_PSNR - psnr(images, originals)).clamp(min=0)
