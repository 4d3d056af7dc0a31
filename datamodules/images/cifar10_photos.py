"""CIFAR-10's photographs as items that users vote on."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.functional import to_pil_image

from fedleak.core.io.files import sha256_of_arrays
from fedleak.core.ranges import PositiveInt
from fedleak.datamodules.images.cifar10 import CIFAR10
from fedleak.datamodules.images.image_set import ImageSet
from fedleak.datamodules.images.voters import ImageVoters


class HeldBackPhotos(ImageSet):
    """Training images of CIFAR-10 that no client of `CIFAR10` has.

    Args:
        per_class: images of each class, the `auxiliary_per_class` of `CIFAR10`, whose other images may train a network.
        seed: seed of `CIFAR10`, which draws them.
    """

    name = "cifar10"
    classes: int = len(CIFAR10.class_names)

    def __init__(self, *, root: str | None, per_class: int, seed: int = 0) -> None:
        self.root = root
        self.per_class = per_class
        self.seed = seed

    def __len__(self) -> int:
        return self.per_class * self.classes

    def __getstate__(self) -> dict[str, Any]:
        """State for another process, which reads the images again."""
        return {"root": self.root, "per_class": self.per_class, "seed": self.seed}

    def image(self, number: int) -> Image.Image:
        picture: Image.Image = to_pil_image(self._held_back[0][number])
        return picture

    def labels(self, numbers: Sequence[int]) -> Tensor:
        return self._held_back[1][list(numbers)]

    @property
    def fingerprint(self) -> dict[str, str]:
        return {"name": self.name, "sha256": sha256_of_arrays(self._held_back[0])}

    @functools.cached_property
    def _held_back(self) -> tuple[Tensor, Tensor]:
        """Images ``(N, 3, 32, 32)`` uint8 in a random order, and their classes."""
        data = CIFAR10(root=self.root, auxiliary_per_class=self.per_class, seed=self.seed)
        examples = data.auxiliary()
        # Neighbours are of one class, and an image's number decides on its part of the features.
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(self.seed))
        pixels = (examples["image"][order] * 255).round().to(torch.uint8)
        return pixels, examples["label"][order]


class CIFAR10Photos(ImageVoters):
    """Users who vote on photographs of CIFAR-10 that are held back from the training of a feature extractor.

    Args:
        per_class: images of each class that are held back; `auxiliary_per_class` of the extractor's training.
    """

    folders = ("cifar10",)

    def __init__(self, *, per_class: PositiveInt = 250, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.per_class = per_class

    @functools.cached_property
    def photos(self) -> HeldBackPhotos:
        return HeldBackPhotos(root=self.root, per_class=self.per_class)
