"""Downloads, checked by hash and size."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import pooch

from errors import InputError


@dataclass(frozen=True)
class Archive:
    """A zip file at its origin.

    Attributes:
        url: where the data set's owners publish it.
        md5: hash of the file, as its owners publish it.
        size: bytes.
    """

    url: str
    md5: str
    size: int


def fetch_archive(archive: Archive, root: Path) -> None:
    """Downloads a zip file with a progress bar, checks it, and unpacks it into `root`.

    Raises:
        InputError: it cannot be reached, or is not the file its owners describe.
    """
    name = archive.url.rsplit("/", 1)[-1]
    try:
        path = Path(pooch.retrieve(archive.url, f"md5:{archive.md5}", fname=name, path=root, progressbar=True))
    except (OSError, ValueError) as error:
        raise _failed(archive, root, str(error)) from error
    if path.stat().st_size != archive.size:
        raise _failed(archive, root, f"{path.stat().st_size} bytes instead of {archive.size}")
    with zipfile.ZipFile(path) as file:
        file.extractall(root)


def by_hand(*, name: str, page: str, target: Path) -> InputError:
    """The error for a data set that a person must fetch."""
    return InputError(
        expected=f"{name} at {target}",
        found="nothing there, and its origin allows no plain download",
        way_out=f"Fetch it from {page} and put it there.",
    )


def _failed(archive: Archive, root: Path, reason: str) -> InputError:
    return InputError(
        expected=f"{archive.url} with md5 {archive.md5}",
        found=reason,
        way_out=f"Fetch the file by hand and unpack it into {root}.",
    )
