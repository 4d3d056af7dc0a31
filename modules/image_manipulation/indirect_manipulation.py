"""Indirect manipulation: images whose features approach a target, for clients that extract features themselves.

Adam changes the pixels until the features are close to rectified noise. The similarity penalty and the bound on the
change of each pixel are future work in the paper (appendix B).

References:
    Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163, sections III.C.3 and IV.C and appendix B.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from modules.image_manipulation.base import ImageManipulation
from modules.image_manipulation.feature_extractor import FeatureExtractor
from modules.image_manipulation.image_quality import psnr, ssim
from modules.image_manipulation.partitions import partition_of, partitioned_noise
from protocol.errors import require
from protocol.ranges import PositiveFloat
from protocol.seeding import generator_for

Likeness = Literal["ssim", "psnr"]
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

    steps: int = 500
    learning_rate: float = 0.01
    enough: float = 1e-3
    likeness: Likeness | None = None
    likeness_weight: float = 0.0
    budget: float | None = None
    variant: Literal["corrected", "as-published-code"] = "corrected"

    def __post_init__(self) -> None:
        require(
            self.steps >= 1 and self.learning_rate > 0 and self.likeness_weight >= 0 and self.enough >= 0,
            "steps and learning_rate above 0, no negative likeness_weight and enough",
            f"{self.steps}, {self.learning_rate}, {self.likeness_weight}, {self.enough}",
            "The paper takes 500 steps at 0.01 and no regularisation.",
        )
        require(self.likeness in (None, "ssim", "psnr"), "likeness ssim or psnr", self.likeness, "Omit it for none.")
        within = self.budget is None or 0 < self.budget <= 1
        require(within, "a budget above 0 and up to 1", self.budget, "8 / 255 is hard to see.")


@dataclass(frozen=True, kw_only=True)
class FeatureNoise(ImageManipulation):
    """Images whose features approach rectified noise in one part and zero in the other parts.

    Args:
        scale: standard deviation of the noise (the paper: 4).
        search: options of the search for pixels.
    """

    name: ClassVar[str] = "noise"

    scale: PositiveFloat = 4.0
    search: PixelSearch = PixelSearch()

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
        targets = self.targets(numbers, extractor.num_features, partitions=partitions, seed=seed)
        return manipulate(extractor, pixels, targets.to(pixels), self.search)

    def targets(self, numbers: Tensor, features: int, *, partitions: int, seed: int) -> Tensor:
        drawn = [
            self._noise(torch.tensor([number % partitions]), features, partitions, generator)
            for number in numbers.tolist()
            for generator in [generator_for(seed, "feature target", number)]
        ]
        return torch.cat(drawn)

    def drawn(self, items: int, features: int, *, partitions: int, generator: torch.Generator) -> Tensor:
        return self._noise(partition_of(items, partitions), features, partitions, generator)

    def _noise(self, part: Tensor, features: int, partitions: int, generator: torch.Generator) -> Tensor:
        return partitioned_noise(part, features, partitions=partitions, scale=self.scale, generator=generator)


def manipulate(extractor: FeatureExtractor, pixels: Tensor, targets: Tensor, search: PixelSearch) -> Tensor:
    """Images optimised until their features are close to the targets.

    With the variant ``corrected``, images are independent except for the number of steps: the search stops when all are
    close enough.

    Args:
        extractor: frozen feature extractor.
        pixels: ``(N, 3, h, w)`` in [0, 1].
        targets: ``(N, F)``.
        search: options.

    Returns:
        ``(N, 3, h, w)`` in [0, 1].
    """
    published = search.variant == "as-published-code"
    reach = 1.0 if search.budget is None else search.budget
    lowest = extractor.normalise((pixels - reach).clamp(min=0))
    highest = extractor.normalise((pixels + reach).clamp(max=1))
    inputs = extractor.normalise(pixels).clone().requires_grad_()
    best, least = inputs.detach().clone(), torch.full((len(pixels),), torch.inf).to(pixels)
    optimizer = torch.optim.Adam([inputs], lr=search.learning_rate)
    for step in range(search.steps + 1):
        with torch.enable_grad():
            gaps = (extractor.of_inputs(inputs) - targets).square().mean(1)
            losses = gaps + _unlikeness(extractor.restore(inputs), pixels, search)
            total = losses.mean() if published else losses.sum()
        better = losses.detach() < least
        least = torch.where(better, losses.detach(), least)
        best = torch.where(better[:, None, None, None], inputs.detach(), best)
        near = bool((gaps <= search.enough).all())
        if step == search.steps or (near and not published):
            break
        (inputs.grad,) = torch.autograd.grad(total, inputs)
        optimizer.step()
        with torch.no_grad():
            inputs.clamp_(lowest, highest)
        if published and float(gaps.detach().mean()) < search.enough:
            break
    return extractor.restore(inputs.detach() if published else best).clamp(0, 1)


def as_bytes(pixels: Tensor) -> Tensor:
    """8-bit pixels of an image file, from pixels in [0, 1]."""
    return (pixels * 255).round().clamp(0, 255).to(torch.uint8)


def halved_to_memory(work: Callable[[Tensor, Tensor], Tensor], images: Tensor, targets: Tensor) -> Tensor:
    """Result of `work` on a batch, which is halved repeatedly if the device's memory is too small."""
    try:
        return work(images, targets)
    except torch.OutOfMemoryError:
        if len(images) == 1:
            raise
    middle = len(images) // 2
    halves = (slice(None, middle), slice(middle, None))
    return torch.cat([halved_to_memory(work, images[half], targets[half]) for half in halves])


def _unlikeness(found: Tensor, pixels: Tensor, search: PixelSearch) -> Tensor:
    """``(N,)`` similarity penalties."""
    if search.likeness is None or not search.likeness_weight:
        return torch.zeros(len(pixels)).to(pixels)
    if search.likeness == "ssim":
        return search.likeness_weight * (1 - ssim(found, pixels))
    return search.likeness_weight * (_BEST_PSNR - psnr(found, pixels)).clamp(min=0)
