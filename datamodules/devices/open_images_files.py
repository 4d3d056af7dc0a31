"""Reading OpenImages' official files: who took an image, and which labels it has."""

from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np

from datamodules.devices.csv_rows import BadRows, Unparsable, read_csv
from datamodules.devices.dates import days_of, iso_day
from datamodules.devices.tagged_photos import TaggedPhotos
from datamodules.devices.user_examples import UNGROUPED
from datamodules.devices.user_filter import ranks_of
from datamodules.images.image_files import image_files, trees
from protocol.errors import InputError

FOLDER = "openimages"
_PAGE = "https://storage.googleapis.com/openimages/web/download_v7.html"
_PARTS = ("train", "validation", "test", "images")
_ID = r"[0-9a-f]{16}"


def read_open_images(root: Path, *, bad_rows: BadRows) -> TaggedPhotos:
    """The images of ``root/openimages/`` that are there as files, in the order of the information files.

    Their files are ``{train,validation,test,images}/IMAGEID.jpg`` or zip files of that form; who took them is in
    ``*rotation*.csv`` (columns ImageID, AuthorProfileURL, Author), labels are in ``*imagelabels*.csv`` (ImageID,
    LabelName, Confidence; those with confidence 1 count, which people verified), their names in
    ``*class-descriptions*.csv``. The official files have no dates: ``dates.csv`` (ImageID, Date like 2008-05-31) may
    give them, from the photographs' pages.

    Args:
        root: folder of the data sets.
        bad_rows: what to do with rows that cannot be read.

    Raises:
        InputError: something is missing, or rows cannot be read.
    """
    folder = root / FOLDER
    files = _image_files(folder)
    bad = Unparsable()
    authors = _authors(folder, files, bad_rows, bad)
    ids = [name for name in authors if name in files]
    if not ids:
        raise InputError(
            expected=f"an author of the {len(files)} images in {folder}",
            found="none in *rotation*.csv there",
            way_out=f"Fetch the information on the same images from {_PAGE}.",
        )
    tags = _tags(folder, set(ids), bad_rows, bad)
    dates = _dates(folder / "dates.csv", bad_rows, bad)
    return TaggedPhotos(
        names=ids,
        files=[files[name] for name in ids],
        owners=ranks_of([authors[name] for name in ids]),
        days=days_of([dates.get(name, "") for name in ids], iso_day),
        groups=np.full(len(ids), UNGROUPED, np.int64),
        tags=[frozenset(tags.get(name, ())) for name in ids],
        unparsable=bad.count,
        lines=tuple(bad.lines),
    )


def _image_files(folder: Path) -> dict[str, Traversable]:
    roots = trees(folder) if folder.is_dir() else []
    places = [place for tree in roots for place in (tree, *(tree.joinpath(part) for part in _PARTS))]
    found = {file.name.rsplit(".", 1)[0]: file for place in places if place.is_dir() for file in image_files(place)}
    if not found:
        raise InputError(
            expected=f"images in {folder}",
            found="none",
            way_out=f"Fetch some from {_PAGE} and put them into {folder / 'train'}.",
        )
    return found


def _authors(folder: Path, files: Mapping[str, Traversable], bad_rows: BadRows, bad: Unparsable) -> dict[str, str]:
    """Account of every image's author: the profile's address, which names can share."""
    authors = dict[str, str]()
    for path in _files(folder, "*rotation*.csv", "information on images (ImageID ... Rotation)"):
        columns, unparsable = read_csv(
            path,
            {"ImageID": _ID, "AuthorProfileURL": None, "Author": None},
            page=_PAGE,
            bad_rows=bad_rows,
            keep=lambda fields: fields[0] in files and bool(fields[1] or fields[2]),
        )
        bad.merge(unparsable)
        accounts = (url or name for url, name in zip(columns["AuthorProfileURL"], columns["Author"], strict=True))
        authors.update(zip(columns["ImageID"], accounts, strict=True))
    return authors


def _tags(folder: Path, ids: set[str], bad_rows: BadRows, bad: Unparsable) -> dict[str, set[str]]:
    """Names of every image's verified labels."""
    names = _label_names(folder, bad_rows)
    tags = dict[str, set[str]]()
    for path in _files(folder, "*imagelabels*.csv", "image-level labels"):
        columns, unparsable = read_csv(
            path,
            {"ImageID": _ID, "LabelName": r"/\w/\S+", "Confidence": r"[01](\.\d+)?"},
            page=_PAGE,
            bad_rows=bad_rows,
            keep=lambda fields: float(fields[2]) == 1 and fields[0] in ids,
        )
        bad.merge(unparsable)
        for image, label in zip(columns["ImageID"], columns["LabelName"], strict=True):
            tags.setdefault(image, set()).add(names.get(label, label))
    return tags


def _label_names(folder: Path, bad_rows: BadRows) -> dict[str, str]:
    names = dict[str, str]()
    for path in _files(folder, "*class-descriptions*.csv", "names of labels"):
        columns, _ = read_csv(
            path, {"LabelName": None, "DisplayName": None}, page=_PAGE, bad_rows=bad_rows, headless=True
        )
        names.update(zip(columns["LabelName"], columns["DisplayName"], strict=True))
    return names


def _dates(path: Path, bad_rows: BadRows, bad: Unparsable) -> dict[str, str]:
    if not path.is_file():
        return {}
    columns, unparsable = read_csv(path, {"ImageID": _ID, "Date": None}, page=_PAGE, bad_rows=bad_rows)
    bad.merge(unparsable)
    return dict(zip(columns["ImageID"], columns["Date"], strict=True))


def _files(folder: Path, pattern: str, what: str) -> list[Path]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise InputError(
            expected=f"{what} as {pattern} in {folder}", found="none", way_out=f"Fetch the file from {_PAGE}."
        )
    return files
