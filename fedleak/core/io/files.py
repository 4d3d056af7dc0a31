"""Reading and writing of whole files; those of strangers must be regular files of bounded size.

A recording, a dump or a data set is opened where it was unpacked. In place of a file there may be a pipe that never
ends, a link to a device, a name that leads out of the folder, or a small archive that unpacks to more than fits into
memory. The functions below refuse all of these.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from fedleak.core.errors import InputError, require
from fedleak_recorder.files import MOST_TEXT as MOST_TEXT
from fedleak_recorder.files import read_bounded as read_bounded
from fedleak_recorder.files import regular_file as regular_file
from fedleak_recorder.files import write_whole as write_whole

MOST_UNPACKED = 2**28
"""Bytes that any file may unpack to."""
MOST_RATIO = 100
"""A larger file may unpack to this many times its size; weights and images compress to a third at best."""


def check_file(path: Path, page: str) -> None:
    """Checks that a file of a data set exists."""
    require(path.is_file(), f"the file {path.name}", f"nothing at {path}", f"Download it from {page} and put it there.")


def unpacked_limit(size: int) -> int:
    """Bytes that a file of `size` bytes may unpack to."""
    return max(MOST_UNPACKED, MOST_RATIO * size)


def inside(folder: Path, name: object, *, what: str) -> Path:
    """Path of a file that a manifest names and that must lie in the manifest's folder.

    Raises:
        InputError: the name is no text, is absolute, or leads out of the folder, also by a link.
    """
    is_name = isinstance(name, str) and 0 < len(name) < 1000 and name.isprintable()
    try:
        path = folder / str(name)
        # Resolved, so that a link inside of the folder that leads out of it is refused as well.
        is_inside = is_name and path.resolve().is_relative_to(folder.resolve()) and ".." not in path.parts
    except (OSError, RuntimeError, ValueError):
        is_inside = False
    require(
        is_inside and not Path(str(name)).is_absolute(),
        f"the name of a file in {folder} as {what}",
        repr(name),
        "Copy the file next to the manifest, and give its name relative to that folder.",
    )
    return path


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_arrays(*arrays: Any) -> str:
    """Hexadecimal SHA-256 of the bytes of arrays of NumPy or tensors, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def check_utf8(path: Path) -> None:
    """Checks that a text file is in UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise InputError(
                    expected=f"{path.name} in UTF-8",
                    found=f"byte 0x{line[error.start]:02x} in line {number} of {path}",
                    way_out="Convert the file to UTF-8, or download it again.",
                ) from None
