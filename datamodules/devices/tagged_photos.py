"""Photographs with owners and several labels each: which labels and users are kept, and the pixels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable

import numpy as np
import numpy.typing as npt
import torch

from datamodules.devices.user_examples import UNDATED, Dropped, OwnedExamples
from datamodules.devices.user_filter import Ints
from datamodules.images.image_files import read_images
from protocol.errors import InputError

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class TaggedPhotos:
    """What is known of N photographs before they are read.

    Attributes:
        names: of the photographs.
        files: where each is.
        owners: ``(N,)`` the owner's rank among all of the source.
        days: ``(N,)``; -1 where unknown.
        groups: ``(N,)`` photoset; -1 where there is none.
        tags: names of the labels of each.
        unparsable: rows that could not be read.
        lines: first of their lines.
    """

    names: Sequence[str]
    files: Sequence[Traversable]
    owners: Ints
    days: Ints
    groups: Ints
    tags: Sequence[frozenset[str]]
    unparsable: int = 0
    lines: tuple[int, ...] = ()

    def select(self, kept: Ints) -> "TaggedPhotos":
        """The photographs of some numbers."""
        numbers = kept.tolist()
        return TaggedPhotos(
            names=[self.names[number] for number in numbers],
            files=[self.files[number] for number in numbers],
            owners=self.owners[kept],
            days=self.days[kept],
            groups=self.groups[kept],
            tags=[self.tags[number] for number in numbers],
            unparsable=self.unparsable,
            lines=self.lines,
        )


def frequent_tags(tags: Sequence[frozenset[str]], *, most: int | None, least_share: float) -> tuple[str, ...]:
    """Labels by how many photographs have them, the most frequent first, equal ones in alphabetical order.

    Args:
        tags: of every photograph.
        most: labels at most; None for all.
        least_share: of the photographs that have a label.
    """
    names, counts = np.unique([name for own in tags for name in own], return_counts=True)
    order = np.lexsort((names, -counts))
    enough = [number for number in order.tolist() if counts[number] >= least_share * len(tags)]
    return tuple(str(names[number]) for number in enough[:most])


def tag_table(tags: Sequence[frozenset[str]], class_names: Sequence[str]) -> Bools:
    """``(N, K)`` which photograph has which label."""
    place: Mapping[str, int] = {name: number for number, name in enumerate(class_names)}
    pairs = [(row, place[name]) for row, own in enumerate(tags) for name in own if name in place]
    table = np.zeros((len(tags), len(class_names)), bool)
    if pairs:
        table[tuple(np.array(pairs).T)] = True
    return table


def examples_of(
    photos: TaggedPhotos,
    class_names: Sequence[str],
    shape: tuple[int, int, int],
    *,
    users_left_out: int,
    name: str,
) -> OwnedExamples:
    """Reads the pixels.

    Args:
        photos: of the users that take part.
        class_names: the K labels.
        shape: channels, height and width to bring them to.
        users_left_out: goes into the counts.
        name: of the data set.

    Raises:
        InputError: a file is damaged, or there is no label.
    """
    if not class_names:
        raise InputError(
            expected=f"labels of the photographs of {name}",
            found=f"none that is frequent enough among {len(photos.names)} photographs",
            way_out="Name the labels in classes, or ask for a smaller share.",
        )
    owner_ids, owners = np.unique(photos.owners, return_inverse=True)
    return OwnedExamples(
        features=read_images(photos.files, shape, resized=True, name=name),
        labels=torch.from_numpy(tag_table(photos.tags, class_names)),
        owners=torch.from_numpy(owners.astype(np.int64).reshape(-1)),
        days=torch.from_numpy(photos.days),
        groups=torch.from_numpy(photos.groups),
        owner_ids=torch.from_numpy(owner_ids),
        dropped=Dropped(
            unparsable=photos.unparsable,
            lines=photos.lines,
            undated=int((photos.days == UNDATED).sum()),
            users=users_left_out,
        ),
    )
