"""Users who take photographs, with several labels each."""

import abc
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from datamodules.devices.base import Background, OwnedDataModule
from datamodules.devices.csv_rows import BadRows
from datamodules.devices.open_images_files import read_open_images
from datamodules.devices.tagged_photos import TaggedPhotos, examples_of, frequent_tags
from datamodules.devices.user_examples import OwnedExamples
from datamodules.devices.user_filter import UserFilter, kept_posts
from protocol.errors import InputError


class PhotoDataModule(OwnedDataModule):
    """Devices with photographs; the other arguments are those of `OwnedDataModule`. A subclass finds them.

    A learner gets ``image (n, 3, height, width)`` float32 in [0, 1] and ``label (n, K)`` bool.

    Args:
        users: see `OwnedDataModule`.
        image_size: height and width to bring all to; the paper's is 224 x 224, of which 1,000 take 150 MB of memory.
        classes: names of the labels; None for the most frequent among the users that take part.
        most_classes: how many at most, where they are not named.
        least_share: of the photographs that have such a label.
        bad_rows: what to do with rows of the files that cannot be read.
    """

    def __init__(
        self,
        *,
        users: UserFilter = UserFilter(),  # noqa: B008 - frozen
        image_size: tuple[int, int] = (64, 64),
        classes: Sequence[str] | None = None,
        most_classes: int | None = None,
        least_share: float = 0.0,
        bad_rows: BadRows = "error",
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, **kwargs)
        if min(image_size) < 1:
            raise InputError(
                expected="image_size of at least 1 pixel", found=str(image_size), way_out="Give height and width."
            )
        self.image_shape = (3, *image_size)
        self.classes = classes
        self.most_classes = most_classes
        self.least_share = least_share
        self.bad_rows: BadRows = bad_rows

    @abc.abstractmethod
    def find(self) -> TaggedPhotos:
        """Finds all photographs of the source."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Name of every label."""
        return self._photos[1]

    @property
    def num_classes(self) -> int:
        """Number of labels K."""
        return len(self.class_names)

    def read(self) -> OwnedExamples:
        """See `OwnedDataModule.read`; the groups are the photosets."""
        photos, class_names, left_out = self._photos
        return examples_of(photos, class_names, self.image_shape, users_left_out=left_out, name=self.name)

    def read_background(self) -> Background:
        """See `OwnedDataModule.read_background`: photographs of OpenImages by authors who take no part.

        Labels go by their names in lower case, so that those of COCO find OpenImages'.
        """
        photos = read_open_images(self.data_root(), bad_rows=self.bad_rows)
        strangers = self.strangers(photos)
        wanted = tuple(name.lower() for name in self.class_names)
        lowered = [frozenset(tag.lower() for tag in own) for own in strangers.tags]
        own = examples_of(
            replace(strangers, tags=lowered),
            wanted,
            self.image_shape,
            users_left_out=0,
            name="the background",
        )
        return Background(own.features, own.labels)

    @abc.abstractmethod
    def strangers(self, photos: TaggedPhotos) -> TaggedPhotos:
        """Those photographs of OpenImages that are of nobody who takes part."""

    def batch(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"image": features.float().div_(255), "label": labels}

    def profile_members(self) -> Tensor:
        """See `OwnedDataModule.profile_members`.

        Raises:
            InputError: a profile names a label that is none.
        """
        return torch.stack([self._with_any(profile.terms) for profile in self.devices.profiles])

    def _with_any(self, terms: Sequence[str]) -> Tensor:
        unknown = [term for term in terms if term not in self.class_names]
        if unknown:
            raise InputError(
                expected=f"labels of {self.name} in a profile ({', '.join(self.class_names)})",
                found=unknown[0],
                way_out="Name some of them, or name the labels that are kept in classes.",
            )
        return self.examples.labels[:, [self.class_names.index(term) for term in terms]].any(1)

    @functools.cached_property
    def _photos(self) -> tuple[TaggedPhotos, tuple[str, ...], int]:
        """The photographs of the users that take part, the labels, and the number of users left out."""
        photos = self.find()
        kept, left_out = kept_posts(
            photos.owners, photos.days, self.users, dated_only=self.dated_only, seed=self.seed, name=self.name
        )
        chosen = photos.select(kept)
        named = None if self.classes is None else tuple(self.classes)
        tags = named or frequent_tags(chosen.tags, most=self.most_classes, least_share=self.least_share)
        return chosen, tags, left_out
