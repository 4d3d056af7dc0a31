"""Base class of data sets of users who take photographs with several labels each."""

import abc
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.core.io.tables import BadRows, Unparsable
from fedleak.datamodules.devices.base import Background, OwnedDataModule
from fedleak.datamodules.devices.user_examples import UNDATED, Dropped, OwnedExamples
from fedleak.datamodules.devices.user_filter import Ints, UserFilter, kept_posts
from fedleak.datamodules.images.image_files import read_images

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class TaggedPhotos:
    """N photographs whose pixels are not read yet.

    Attributes:
        names: names of the photographs.
        files: their files.
        owners: ``(N,)`` rank of the owner among all of the source.
        days: ``(N,)`` as `OwnedExamples.days`; -1 if unknown.
        groups: ``(N,)`` photoset; -1 if there is none.
        tags: names of the labels of each.
        unparsable: rows that could not be read.
    """

    names: Sequence[str]
    files: Sequence[Traversable]
    owners: Ints
    days: Ints
    groups: Ints
    tags: Sequence[frozenset[str]]
    unparsable: Unparsable

    def select(self, positions: Ints) -> "TaggedPhotos":
        """The photographs with the given numbers."""
        numbers = positions.tolist()
        return replace(
            self,
            names=[self.names[number] for number in numbers],
            files=[self.files[number] for number in numbers],
            owners=self.owners[positions],
            days=self.days[positions],
            groups=self.groups[positions],
            tags=[self.tags[number] for number in numbers],
        )


class PhotoDataModule(OwnedDataModule):
    """Devices with photographs. A subclass finds them; the groups of the examples are photosets.

    A learner gets ``image (n, 3, height, width)`` float32 in [0, 1] and ``label (n, K)`` bool.

    Args:
        image_size: height and width after resizing; the paper's is 224 x 224, of which 1,000 take 150 MB of memory.
        classes: names of the labels; None for the most frequent among the selected users.
        most_classes: largest number of labels, if they are not named.
        least_share: least share of photographs with a label, if they are not named.
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
        require(min(image_size) >= 1, "image_size of at least 1 pixel", image_size, "Give height and width.")
        self.image_shape = (3, *image_size)
        self.classes, self.most_classes, self.least_share = classes, most_classes, least_share
        self.bad_rows: BadRows = bad_rows

    @abc.abstractmethod
    def find(self) -> TaggedPhotos:
        """Finds all photographs of the source."""

    @abc.abstractmethod
    def strangers(self) -> TaggedPhotos:
        """Finds photographs of OpenImages by people outside the training."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Name of every label."""
        return self._photos[1]

    @property
    def num_classes(self) -> int:
        """Number of labels K."""
        return len(self.class_names)

    def read(self) -> OwnedExamples:
        photos, class_names, left_out = self._photos
        return examples_of(photos, class_names, self.image_shape, users_left_out=left_out, name=self.name)

    def read_background(self) -> Background:
        """Reads `strangers`; labels are compared in lower case, so that those of COCO match OpenImages'."""
        strangers = self.strangers()
        lowered_tags = [_lowered(tags) for tags in strangers.tags]
        examples = examples_of(
            replace(strangers, tags=lowered_tags),
            tuple(name.lower() for name in self.class_names),
            self.image_shape,
            users_left_out=0,
            name="the background",
        )
        return Background(examples.features, examples.labels)

    def batch(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"image": features.float().div_(255), "label": labels}

    def profile_members(self, examples: OwnedExamples | Background) -> Tensor:
        """``(P, N)`` True for the examples of each profile.

        Raises:
            InputError: a term of a profile is no label.
        """
        members = [self._with_any(profile.terms, examples.labels) for profile in self.devices.profiles]
        return torch.stack(members)

    def _with_any(self, terms: Sequence[str], labels: Tensor) -> Tensor:
        require(
            set(terms) <= set(self.class_names),
            f"labels of {self.name} in a profile ({', '.join(self.class_names)})",
            ", ".join(term for term in terms if term not in self.class_names),
            "Name some of them, or name the labels that are kept in classes.",
        )
        return labels[:, [self.class_names.index(term) for term in terms]].any(1)

    @functools.cached_property
    def _photos(self) -> tuple[TaggedPhotos, tuple[str, ...], int]:
        """Photographs of the selected users, names of the labels, and the number of users left out."""
        photos = self.find()
        positions, left_out = kept_posts(
            photos.owners, photos.days, self.users, dated_only=self.dated_only, seed=self.seed, name=self.name
        )
        chosen = photos.select(positions)
        tags = tuple(self.classes or ())
        if not tags:
            tags = frequent_tags(chosen.tags, most=self.most_classes, least_share=self.least_share)
        return chosen, tags, left_out


def _lowered(tags: frozenset[str]) -> frozenset[str]:
    return frozenset(tag.lower() for tag in tags)


def frequent_tags(tags: Sequence[frozenset[str]], *, most: int | None, least_share: float) -> tuple[str, ...]:
    """At most `most` labels that a share of the photographs has; most frequent first, ties in alphabetical order."""
    all_tags: list[str] = []
    for photo_tags in tags:
        all_tags += photo_tags
    names, counts = np.unique(all_tags, return_counts=True)
    # Most frequent first; the last key of lexsort is the first one to sort by.
    order = np.lexsort((names, -counts))
    fewest_photos = least_share * len(tags)
    frequent = [number for number in order.tolist() if counts[number] >= fewest_photos]
    return tuple(str(names[number]) for number in frequent[:most])


def tag_table(tags: Sequence[frozenset[str]], class_names: Sequence[str]) -> Bools:
    """``(N, K)`` True where a photograph has a label."""
    column_of: Mapping[str, int] = {name: number for number, name in enumerate(class_names)}
    table = np.zeros((len(tags), len(class_names)), bool)
    for row, photo_tags in enumerate(tags):
        columns = [column_of[tag] for tag in photo_tags if tag in column_of]
        table[row, columns] = True
    return table


def examples_of(
    photos: TaggedPhotos, class_names: Sequence[str], shape: tuple[int, int, int], *, users_left_out: int, name: str
) -> OwnedExamples:
    """Reads the pixels of photographs."""
    require(
        class_names,
        f"labels of the photographs of {name}",
        f"none that is frequent enough among {len(photos.names)} photographs",
        "Name the labels in classes, or ask for a smaller share.",
    )
    # Users are numbered from 0 among those whose photographs are read.
    owner_ids, owners = np.unique(photos.owners, return_inverse=True)
    return OwnedExamples(
        features=read_images(photos.files, shape, resized=True, name=name),
        labels=torch.from_numpy(tag_table(photos.tags, class_names)),
        owners=torch.from_numpy(owners.astype(np.int64).reshape(-1)),
        days=torch.from_numpy(photos.days),
        groups=torch.from_numpy(photos.groups),
        owner_ids=torch.from_numpy(owner_ids),
        dropped=Dropped(
            unparsable=photos.unparsable.count,
            lines=tuple(photos.unparsable.lines),
            undated=int((photos.days == UNDATED).sum()),
            users=users_left_out,
        ),
    )
