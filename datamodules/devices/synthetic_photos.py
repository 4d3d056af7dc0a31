"""Synthetic images with votes of users; results on them say nothing about real data."""

from typing import Any

from datamodules.images.image_set import GeneratedImages
from datamodules.images.voters import ImageVoters
from protocol.ranges import PositiveInt


class SyntheticPhotos(ImageVoters):
    """Users who vote on `GeneratedImages`. Needs no files.

    Args:
        generated: number of images.
        size: height and width in pixels.
    """

    folders = (GeneratedImages.name,)

    def __init__(self, *, generated: PositiveInt = 64, size: PositiveInt = 64, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.generated = generated
        self.size = size

    @property
    def photos(self) -> GeneratedImages:
        return GeneratedImages(count=self.generated, size=self.size)
