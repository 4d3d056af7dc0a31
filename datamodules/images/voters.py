"""Users who vote on items that the server shows them, every user once (RAIFLE, section V.C)."""

import abc
from typing import Any

import torch
from torch import Tensor

from datamodules.base import FederatedDataModule
from datamodules.cohort import Cohort
from datamodules.images.image_set import ImageSet
from protocol.errors import InputError
from ranges import NonNegativeInt, PositiveInt


class Voters(FederatedDataModule):
    """Users, dealt out to sets of items in turn; round k is that of set k. A subclass says what the items are.

    Args:
        root: folder that holds the data sets by their names; None for the environment variable ``FEDLEAK_DATA``.
        users: number of users.
        item_sets: how often items are drawn anew: users of one set vote on the same items.
        seed: seed of every draw.
        num_workers: processes that build the next cohort while this one trains.
    """

    def __init__(
        self,
        *,
        root: str | None = None,
        users: PositiveInt = 200,
        item_sets: PositiveInt = 4,
        seed: int = 0,
        num_workers: NonNegativeInt = 0,
    ) -> None:
        super().__init__(root=root, clients_per_round=1.0, seed=seed, num_workers=num_workers)
        if users < item_sets:
            raise InputError(
                expected="as many users as item_sets, or more",
                found=f"{users} users of {item_sets} sets",
                way_out="The paper has 200 users.",
            )
        self.users = users
        self.item_sets = item_sets

    @property
    def num_clients(self) -> int:
        """Number of users."""
        return self.users

    @property
    def rounds(self) -> int:
        """One for each set of items."""
        return self.item_sets

    def participants(self, round_number: int) -> Tensor:
        """``(C,)`` numbers of the users who vote on a round's items, ascending."""
        return torch.arange(round_number % self.item_sets, self.users, self.item_sets)

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """The given users; what they hold are the votes that they cast in the round."""
        return Cohort(round_number, clients, {}, torch.zeros(len(clients), 0, dtype=torch.bool))


class ImageVoters(Voters):
    """Users who vote on images.

    The other arguments are those of `Voters`.

    Args:
        images: how many of the data set's are shown, None for all.
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
        """Numbers of the images that are shown.

        Raises:
            InputError: there are not so many.
        """
        return self.photos.first(len(self.photos) if self.images is None else self.images)

    @property
    def fingerprint(self) -> dict[str, str]:
        """Name of the set of images and the sha256 of which images it has."""
        return self.photos.fingerprint
