"""Base class of image manipulations by a malicious server.

References:
    Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163, section III.C.3.
"""

import abc
import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from modules.image_manipulation.feature_extractor import FeatureExtractor
from protocol.errors import InputError
from protocol.ranges import check_fields


class ImageManipulation(abc.ABC):
    """Manipulation of images whose features the clients extract.

    Attributes:
        name: name in recordings.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Checks the ranges of the options."""
        if dataclasses.is_dataclass(self):
            check_fields(self)

    @abc.abstractmethod
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
        """Manipulated images; random draws depend on the seed and an image's number, not on the batch.

        Args:
            extractor: the clients' frozen feature extractor.
            pixels: ``(N, 3, h, w)`` in [0, 1].
            numbers: ``(N,)`` numbers of the images in their set.
            partitions: number of parts of the features; image n belongs to part ``n % partitions``.
            seed: seed of every draw.
            labels: ``(N,)`` classes of the images under the extractor's classifier, -1 if unknown; None if all are.

        Returns:
            ``(N, 3, h, w)`` in [0, 1].
        """

    def targets(self, numbers: Tensor, features: int, *, partitions: int, seed: int) -> Tensor | None:
        """Target features ``(N, F)`` of the images with these numbers; None without targets."""
        return None

    def drawn(self, items: int, features: int, *, partitions: int, generator: torch.Generator) -> Tensor:
        """Features ``(R, F)`` of manipulated items for data with drawn features instead of images.

        Raises:
            InputError: the manipulation applies only to images.
        """
        raise InputError(
            expected=f"images for the manipulation {self.name!r}",
            found="items of drawn features",
            way_out="Choose data with images, or another manipulation.",
        )
