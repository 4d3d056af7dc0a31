"""Synthetic images, a prototype per class plus noise; results on them say nothing about real data."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeFloat, PositiveInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.datamodules.images.base import ClassificationDataModule, LabelledImages

_COARSE = 4
"""Height and width of the random values of a prototype, which is interpolated between them."""


class SyntheticImages(ClassificationDataModule):
    """Smooth random prototypes, one per class, with independent noise. Needs no files.

    Args:
        classes: number of classes.
        shape: channels, height and width.
        train_per_class: training images of each class.
        test_per_class: test images of each class.
        noise: standard deviation of the noise of a pixel; prototypes range over [0, 1].
    """

    name = "synthetic-images"
    folders = (name,)

    def __init__(
        self,
        *,
        classes: PositiveInt = 10,
        shape: tuple[int, int, int] = (1, 12, 12),
        train_per_class: PositiveInt = 500,
        test_per_class: PositiveInt = 50,
        noise: NonNegativeFloat = 0.3,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require(
            min(classes - 1, *shape, train_per_class, test_per_class) >= 1 and noise >= 0,
            "two classes and one image of each at least, and no negative noise",
            f"{classes} classes, shape {shape}, {train_per_class} and {test_per_class} images, noise {noise}",
            "Give larger numbers.",
        )
        self.class_names = tuple(str(number) for number in range(classes))
        self.image_shape = shape
        self.noise = noise
        self.train_per_class = train_per_class
        self.test_per_class = test_per_class

    def read_train(self) -> LabelledImages:
        return self._draw("train", self.train_per_class)

    def read_test(self) -> LabelledImages:
        return self._draw("test", self.test_per_class)

    @functools.cached_property
    def _prototypes(self) -> Tensor:
        """``(K, channels, height, width)``."""
        generator = generator_for(self.seed, "prototypes", PERSISTENT)
        coarse = torch.rand(self.num_classes, self.image_shape[0], _COARSE, _COARSE, generator=generator)
        return interpolate(coarse, size=self.image_shape[1:], mode="bilinear", align_corners=True)

    def _draw(self, part: str, per_class: int) -> LabelledImages:
        generator = generator_for(self.seed, f"synthetic images {part}", PERSISTENT)
        labels = torch.arange(self.num_classes).repeat_interleave(per_class)
        images = self._prototypes[labels]
        images += self.noise * torch.randn(images.shape, generator=generator)
        pixels = (images.clamp_(0, 1) * 255).round_().to(torch.uint8)
        return LabelledImages(pixels, labels)
