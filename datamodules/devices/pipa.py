"""PIPA: photo albums from Flickr with their authors, and the objects that a detector finds in them."""

from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np

from fedleak.core.errors import require
from fedleak.core.io.tables import LINE, TEXT, WHOLE, BadRows, Field, Unparsable, matching, read_table
from fedleak.datamodules.devices.open_images import read_open_images
from fedleak.datamodules.devices.photos import PhotoDataModule, TaggedPhotos
from fedleak.datamodules.devices.user_examples import UNDATED
from fedleak.datamodules.devices.user_filter import UserFilter, ranks_of
from fedleak.datamodules.images.image_files import image_files_by_stem

_PAGE = "https://github.com/coallaoh/PIPA_dataset"
SUBSETS = ("leftover", "train", "val", "test")
"""Folders of the photographs, by the number in the last column of the list."""
_LIST = {
    "photoset": WHOLE,
    "photo": WHOLE,
    "xmin": TEXT,
    "ymin": TEXT,
    "width": TEXT,
    "height": TEXT,
    "identity": TEXT,
    "subset": matching("[0-3]", "a subset from 0 to 3", int),
}
_SCORE = matching(r"(?:[0-9]{1,9}(?:\.[0-9]*)?|\.[0-9]+)(?:e-[0-9]{1,3})?", "a score", float)


class PIPA(PhotoDataModule):
    """People In Photo Albums, photographs by Flickr author.

    Size: 37,107 photographs; the paper uses 33,051 of 53 authors, with 19 labels of COCO that it does not list. There
    are no dates, so the prior ``chrono`` is not possible, but ``photoset`` is. The background is OpenImages.

    Files in ``root/pipa/``, the first and the photographs from https://github.com/coallaoh/PIPA_dataset:

    * ``all_data.txt`` with one line per person in a photograph;
    * ``{train,val,test,leftover}/PHOTOSET_PHOTO.jpg``, or zip files of that form;
    * ``authors.csv`` (photo_id, author), from the photographs' pages at Flickr;
    * ``labels.csv`` (photo_id, label, score), one row per object that a detector of COCO's 80 classes found.

    Args:
        users: see `OwnedDataModule`; the paper's have at least 100 images.
        least_share: see `PhotoDataModule`; the paper's labels are in about 1 % of the images or more.
        least_score: least score of a detection that counts.

    References:
        [Zhang15].
    """

    name = "pipa"
    folders = (name,)

    def __init__(
        self,
        *,
        users: UserFilter = UserFilter(fewest=100),  # noqa: B008 - frozen
        least_share: float = 0.01,
        least_score: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, least_share=least_share, **kwargs)
        require(0 <= least_score <= 1, "least_score from 0 to 1", least_score, "0.5 is a usual value.")
        self.least_score = least_score

    def find(self) -> TaggedPhotos:
        return read_pipa(self.data_root(), least_score=self.least_score, bad_rows=self.bad_rows)

    def strangers(self) -> TaggedPhotos:
        """All photographs of OpenImages: its authors are taken to be other people."""
        return read_open_images(self.data_root(), bad_rows=self.bad_rows)


def read_annotations(path: Path) -> dict[int, int]:
    """Photosets by photograph, from ``all_data.txt``, which has one line per person in a photograph."""
    columns, _ = read_table(path, _LIST, page=_PAGE, separator=" ", header=False)
    photosets = dict[int, int]()
    for photo, photoset in zip(columns["photo"], columns["photoset"], strict=True):
        photosets.setdefault(photo, photoset)
    return photosets


def read_pipa(root: Path, *, least_score: float, bad_rows: BadRows) -> TaggedPhotos:
    """The photographs of ``root/pipa/`` (see `PIPA`) with a file and a known author."""
    folder = root / PIPA.name
    photosets = read_annotations(folder / "all_data.txt")
    bad = Unparsable()
    authors = _table(folder / "authors.csv", {"photo_id": WHOLE, "author": LINE}, bad_rows, bad)
    author_of = dict(zip(authors["photo_id"], authors["author"], strict=True))
    detections = _table(folder / "labels.csv", {"photo_id": WHOLE, "label": LINE, "score": _SCORE}, bad_rows, bad)
    tags: dict[int, set[str]] = {}
    for photo, label, score in zip(*detections.values(), strict=True):
        if score >= least_score:
            tags.setdefault(photo, set()).add(label)
    # A photograph counts if it has a file and an author.
    image_files = image_files_by_stem(folder, SUBSETS)
    photos: list[int] = []
    files: list[Traversable] = []
    albums: list[str] = []
    for photo, photoset in photosets.items():
        file = image_files.get(f"{photoset}_{photo}")
        if photo in author_of and file is not None:
            photos.append(photo)
            files.append(file)
            # Numbers of photosets are those of an account.
            albums.append(f"{author_of[photo]} {photoset}")
    require(
        photos,
        f"photographs of all_data.txt in {folder} whose author is in authors.csv",
        f"{len(image_files)} image files, {len(author_of)} authors, none in common",
        f"Name the files PHOTOSET_PHOTO.jpg, as {_PAGE} lays them out.",
    )
    return TaggedPhotos(
        names=[str(photo) for photo in photos],
        files=files,
        owners=ranks_of([author_of[photo] for photo in photos]),
        days=np.full(len(photos), UNDATED, np.int64),
        groups=ranks_of(albums),
        tags=[frozenset(tags.get(photo, ())) for photo in photos],
        unparsable=bad,
    )


def _table(path: Path, columns: dict[str, Field], bad_rows: BadRows, bad: Unparsable) -> dict[str, list[Any]]:
    require(
        path.is_file(),
        f"{path.name} with the columns {', '.join(columns)}",
        f"nothing at {path}",
        "PIPA's own files do not have it: take authors from Flickr's pages of the photographs, and labels from a "
        "detector of COCO's classes.",
    )
    table, unparsable = read_table(path, columns, page=_PAGE, bad_rows=bad_rows)
    bad.merge(unparsable)
    return table
