"""OpenImages: photographs from Flickr with their authors and labels of the whole image."""

from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np

from fedleak.core.errors import require
from fedleak.core.io.tables import TEXT, BadRows, Unparsable, matching, read_table
from fedleak.datamodules.devices.dates import days_of, iso_day
from fedleak.datamodules.devices.photos import PhotoDataModule, TaggedPhotos
from fedleak.datamodules.devices.user_examples import UNGROUPED
from fedleak.datamodules.devices.user_filter import UserFilter, ranks_of
from fedleak.datamodules.images.image_files import image_files_by_stem

_PAGE = "https://storage.googleapis.com/openimages/web/download_v7.html"
_PARTS = ("train", "validation", "test", "images")
_ID = matching("[0-9a-f]{16}", "16 hexadecimal digits")
_LABEL = matching(r"/\w/\S+", "a label like /m/0c4")
_CONFIDENCE = matching(r"[01](\.\d+)?", "a number from 0 to 1", float)


class OpenImages(PhotoDataModule):
    """OpenImages, photographs from Flickr by author.

    Size: 9 million images; the paper uses 317,008 of 327 authors, with 18 labels that it does not list. The background
    is the photographs of authors outside the training.

    Files in ``root/openimages/``, from https://storage.googleapis.com/openimages/web/download_v7.html:

    * images ``{train,validation,test,images}/IMAGEID.jpg``, or zip files of that form;
    * ``*rotation*.csv`` with the authors (columns ImageID, AuthorProfileURL, Author);
    * ``*imagelabels*.csv`` with the labels (ImageID, LabelName, Confidence); those of confidence 1, which people
      verified, are used;
    * ``*class-descriptions*.csv`` with the names of labels;
    * optional ``dates.csv`` (ImageID, Date like 2008-05-31): official files have none, the photographs' pages do.

    Args:
        users: see `OwnedDataModule`; the paper's have at least 500 images.

    References:
        [Kuznetsova20].
    """

    name = "openimages"
    folders = (name,)

    def __init__(
        self,
        *,
        users: UserFilter = UserFilter(fewest=500),  # noqa: B008 - frozen
        most_classes: int | None = 18,
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, most_classes=most_classes, **kwargs)

    def find(self) -> TaggedPhotos:
        return read_open_images(self.data_root(), bad_rows=self.bad_rows)

    def strangers(self) -> TaggedPhotos:
        photos = self.find()
        is_user = np.isin(photos.owners, self.examples.owner_ids.numpy())
        return photos.select(np.flatnonzero(~is_user))


def read_open_images(root: Path, *, bad_rows: BadRows) -> TaggedPhotos:
    """The images of ``root/openimages/`` (see `OpenImages`) with a file, in the order of the authors' files."""
    folder = root / OpenImages.name
    files = image_files_by_stem(folder, _PARTS)
    require(
        files,
        f"images in {folder}",
        "none",
        f"Download some from {_PAGE} and put them into {folder / 'train'}.",
    )
    # Only images with a file and an author count, so the tables of all images are read for these alone.
    bad = Unparsable()
    authors = _authors(folder, files, bad_rows, bad)
    ids = [name for name in authors if name in files]
    require(
        ids,
        f"an author of the {len(files)} images in {folder}",
        "none in *rotation*.csv there",
        f"Download the information on the same images from {_PAGE}.",
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
        unparsable=bad,
    )


def _authors(folder: Path, files: Mapping[str, Traversable], bad_rows: BadRows, bad: Unparsable) -> dict[str, str]:
    """Account of every image's author: the address of the profile, because several authors may have one name."""
    # A table has millions of rows: those of other images are dropped while it is read.
    authors: dict[str, str] = {}
    for path in _files(folder, "*rotation*.csv", "information on images (ImageID ... Rotation)"):
        columns, unparsable = read_table(
            path,
            {"ImageID": _ID, "AuthorProfileURL": TEXT, "Author": TEXT},
            page=_PAGE,
            bad_rows=bad_rows,
            keep=lambda row: row[0] in files and bool(row[1] or row[2]),
        )
        bad.merge(unparsable)
        for image, url, name in zip(*columns.values(), strict=True):
            authors[image] = url or name
    return authors


def _tags(folder: Path, ids: set[str], bad_rows: BadRows, bad: Unparsable) -> dict[str, set[str]]:
    """Names of the verified labels of every image."""
    names: dict[str, str] = {}
    for path in _files(folder, "*class-descriptions*.csv", "names of labels"):
        descriptions = {"LabelName": TEXT, "DisplayName": TEXT}
        columns, _ = read_table(path, descriptions, page=_PAGE, bad_rows=bad_rows, header=None)
        names.update(zip(columns["LabelName"], columns["DisplayName"], strict=True))
    tags: dict[str, set[str]] = {}
    for path in _files(folder, "*imagelabels*.csv", "image-level labels"):
        # A confidence of 1 is a label that a person has verified, 0 one that a person has denied.
        columns, unparsable = read_table(
            path,
            {"ImageID": _ID, "LabelName": _LABEL, "Confidence": _CONFIDENCE},
            page=_PAGE,
            bad_rows=bad_rows,
            keep=lambda row: row[2] == 1 and row[0] in ids,
        )
        bad.merge(unparsable)
        for image, label in zip(columns["ImageID"], columns["LabelName"], strict=True):
            tags.setdefault(image, set()).add(names.get(label, label))
    return tags


def _dates(path: Path, bad_rows: BadRows, bad: Unparsable) -> dict[str, str]:
    if not path.is_file():
        return {}
    columns, unparsable = read_table(path, {"ImageID": _ID, "Date": TEXT}, page=_PAGE, bad_rows=bad_rows)
    bad.merge(unparsable)
    return dict(zip(columns["ImageID"], columns["Date"], strict=True))


def _files(folder: Path, pattern: str, what: str) -> list[Path]:
    files = sorted(folder.glob(pattern))
    require(files, f"{what} as {pattern} in {folder}", "none", f"Download the file from {_PAGE}.")
    return files
