"""Users who vote once each on items that the server shows them (RAIFLE, section V.C)."""

import abc
from typing import Any

import torch
from torch import Tensor

from fedleak.client.cohort import Cohort
from fedleak.core.errors import require
from fedleak.core.ranges import PositiveInt
from fedleak.datamodules.images.image_set import GeneratedImages, ImageSet
from fedleak.training.data import FederatedDataModule


class Voters(FederatedDataModule):
    """Users assigned in turn to sets of items; round k has the users of set k. A subclass defines the items.

    Args:
        users: number of users.
        item_sets: number of sets of items; users of one set vote on the same items.
        kwargs: see `FederatedDataModule`; all users of a set take part.
    """

    def __init__(self, *, users: PositiveInt = 200, item_sets: PositiveInt = 4, **kwargs: Any) -> None:
        super().__init__(clients_per_round=1.0, **kwargs)
        require(
            users >= item_sets,
            "as many users as item_sets, or more",
            f"{users} users of {item_sets} sets",
            "The paper has 200 users.",
        )
        self.users = users
        self.item_sets = item_sets

    @property
    def num_clients(self) -> int:
        return self.users

    @property
    def rounds(self) -> int:
        """Number of sets of items."""
        return self.item_sets

    def participants(self, round_number: int) -> Tensor:
        return torch.arange(round_number % self.item_sets, self.users, self.item_sets)

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """Cohort of the given users, who hold nothing before they vote in the round."""
        return Cohort(round_number, clients, {}, torch.zeros(len(clients), 0, dtype=torch.bool))


class ImageVoters(Voters):
    """Users who vote on images.

    Args:
        images: number of images that are shown; None for all.
    """

    def __init__(self, *, images: PositiveInt | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.images = images

    @property
    @abc.abstractmethod
    def photos(self) -> ImageSet:
        """The images."""

    @property
    def numbers(self) -> list[int]:
        """Numbers of the images that are shown."""
        count = self.images
        if count is None:
            count = len(self.photos)
        return self.photos.first(count)

    @property
    def fingerprint(self) -> dict[str, str]:
        return self.photos.fingerprint


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
