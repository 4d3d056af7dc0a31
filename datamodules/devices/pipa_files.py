"""Reading PIPA (Zhang 2015): the official list of people in photographs, and what Flickr and a detector say of them."""

from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
import pandas as pd

from datamodules.devices.csv_rows import BadRows, Unparsable, read_csv
from datamodules.devices.tagged_photos import TaggedPhotos
from datamodules.devices.user_examples import UNDATED
from datamodules.devices.user_filter import ranks_of
from datamodules.images.image_files import image_files, trees
from datamodules.recommendation.ratings_csv import read_ratings
from protocol.errors import InputError

FOLDER = "pipa"
_PAGE = "https://github.com/coallaoh/PIPA_dataset"
_COLUMNS = ["photoset", "photo", "xmin", "ymin", "width", "height", "identity", "subset"]
SUBSETS = ("leftover", "train", "val", "test")
"""Folders of the photographs, by the number in the list's last column."""
_NUMBER = r"[0-9]{1,18}"
_SCORE = r"(?:[0-9]{1,9}(?:\.[0-9]*)?|\.[0-9]+)(?:e-[0-9]{1,3})?"


def read_annotations(path: Path) -> pd.DataFrame:
    """Photographs of ``all_data.txt``, each once, with ``photoset``, ``photo`` and ``subset`` as they stand.

    The file has a line for every person in a photograph; who they are is of no use here.

    Raises:
        InputError: the file is missing or broken; the line is named.
    """
    frame = read_ratings(path, columns=_COLUMNS, whole=["photoset", "photo", "subset"], separator=" ")
    wrong = ~frame["subset"].between(0, len(SUBSETS) - 1)
    if wrong.any():
        raise InputError(
            expected="a subset from 0 to 3 in the last column",
            found=f"{frame['subset'][wrong].iloc[0]} in line {int(np.argmax(wrong.to_numpy())) + 1} of {path}",
            way_out=f"Fetch the file again from {_PAGE}.",
        )
    return frame.drop_duplicates("photo")[["photoset", "photo", "subset"]].reset_index(drop=True)


def read_pipa(root: Path, *, least_score: float, bad_rows: BadRows) -> TaggedPhotos:
    """The photographs of ``root/pipa/`` that are there as files and whose author is known.

    Beside ``all_data.txt``: ``authors.csv`` (photo_id, author; from Flickr's page of each photograph), ``labels.csv``
    (photo_id, label, score; what a detector of COCO's 80 classes found, one row for each thing), and the photographs
    ``{train,val,test,leftover}/PHOTOSET_PHOTO.jpg`` or zip files of that form.

    Args:
        root: folder of the data sets.
        least_score: of a detection.
        bad_rows: what to do with rows of the two CSV files that cannot be read.

    Raises:
        InputError: something is missing, or rows cannot be read.
    """
    folder = root / FOLDER
    frame = read_annotations(folder / "all_data.txt")
    bad = Unparsable()
    authors = _table(folder / "authors.csv", {"photo_id": _NUMBER, "author": r".+"}, bad_rows, bad)
    author_of = dict(zip(map(int, authors["photo_id"]), authors["author"], strict=True))
    found = _table(folder / "labels.csv", {"photo_id": _NUMBER, "label": r".+", "score": _SCORE}, bad_rows, bad)
    tags = dict[int, set[str]]()
    for photo, label, score in zip(map(int, found["photo_id"]), found["label"], found["score"], strict=True):
        if float(score) >= least_score:
            tags.setdefault(photo, set()).add(label)
    files = _photo_files(folder)
    there = [
        (photoset, photo, file)
        for photoset, photo in zip(frame["photoset"].tolist(), frame["photo"].tolist(), strict=True)
        if photo in author_of and (file := files.get(f"{photoset}_{photo}")) is not None
    ]
    if not there:
        raise InputError(
            expected=f"photographs of all_data.txt in {folder} whose author is in authors.csv",
            found=f"{len(files)} image files, {len(author_of)} authors, none in common",
            way_out=f"Name the files PHOTOSET_PHOTO.jpg, as {_PAGE} lays them out.",
        )
    accounts = [author_of[photo] for _, photo, _ in there]
    albums = [f"{account} {photoset}" for account, (photoset, _, _) in zip(accounts, there, strict=True)]
    return TaggedPhotos(
        names=[str(photo) for _, photo, _ in there],
        files=[file for _, _, file in there],
        owners=ranks_of(accounts),
        days=np.full(len(there), UNDATED, np.int64),
        groups=ranks_of(albums),
        tags=[frozenset(tags.get(photo, ())) for _, photo, _ in there],
        unparsable=bad.count,
        lines=tuple(bad.lines),
    )


def _table(path: Path, columns: dict[str, str | None], bad_rows: BadRows, bad: Unparsable) -> dict[str, list[str]]:
    if not path.is_file():
        raise InputError(
            expected=f"{path.name} with the columns {', '.join(columns)}",
            found=f"nothing at {path}",
            way_out="PIPA's own files do not have it: take authors from Flickr's pages of the photographs, and labels "
            "from a detector of COCO's classes.",
        )
    found, unparsable = read_csv(path, columns, page=_PAGE, bad_rows=bad_rows)
    bad.merge(unparsable)
    return found


def _photo_files(folder: Path) -> dict[str, Traversable]:
    places = [place for tree in trees(folder) for place in (tree, *(tree.joinpath(part) for part in SUBSETS))]
    return {file.name.rsplit(".", 1)[0]: file for place in places if place.is_dir() for file in image_files(place)}
