"""What a server does to the images that it sends (RAIFLE, section III.C.3): the base class of every way."""

import abc
import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from modules.image_manipulation.feature_extractor import FeatureExtractor
from protocol.errors import InputError
from ranges import check_fields


class ImageManipulation(abc.ABC):
    """A way of the server to change images, of which clients extract features themselves.

    Attributes:
        name: the name under which it is recorded.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Refuses impossible options."""
        if dataclasses.is_dataclass(self):
            check_fields(self)

    @abc.abstractmethod
    def perturb(
        self, extractor: FeatureExtractor, pixels: Tensor, numbers: Tensor, *, partitions: int, seed: int
    ) -> Tensor:
        """Changes images; what it draws depends on the seed and an image's number, not on the batch.

        Args:
            extractor: what clients extract features with; frozen.
            pixels: ``(N, 3, h, w)`` in [0, 1].
            numbers: ``(N,)`` of the images in their set.
            partitions: parts of the features; image n belongs to part n modulo the parts.
            seed: seed of every draw.

        Returns:
            ``(N, 3, h, w)`` in [0, 1].
        """

    def targets(self, numbers: Tensor, features: int, *, partitions: int, seed: int) -> Tensor | None:
        """Features ``(N, F)`` that the images of these numbers are to approach; None where there are no such."""
        return None

    def drawn(self, items: int, features: int, *, partitions: int, generator: torch.Generator) -> Tensor:
        """Features ``(R, F)`` of manipulated items, where there are no images but only drawn features.

        Raises:
            InputError: it changes nothing but images.
        """
        raise InputError(
            expected=f"images for the manipulation {self.name!r}",
            found="items of drawn features",
            way_out="Choose data with images, or another manipulation.",
        )
