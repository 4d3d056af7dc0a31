"""Reading and writing of whole files; those of strangers must be regular files of bounded size.

In place of a file there may be a pipe that never ends, or a link to a device; the functions below refuse them.
"""

import glob
import hashlib
import io
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fedleak_recorder.errors import InputError, require

MOST_TEXT = 2**26
"""Bytes of a manifest or of a list of names."""
_WAY_OUT = "Give a regular file; copy the target of a link together with the rest of the folder."


def regular_file(path: Path, *, way_out: str = _WAY_OUT) -> int:
    """Size in bytes of a regular file; links are followed.

    Raises:
        InputError: it is missing, or a folder, a pipe or a device.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        raise InputError(expected=f"the file {path.name}", found=f"nothing at {path}", way_out=way_out) from None
    expected = f"{path.name} as a regular file"
    require(stat.S_ISREG(found.st_mode), expected, f"a folder, a pipe or a device at {path}", way_out)
    return found.st_size


def read_bounded(path: Path, *, most: int = MOST_TEXT, way_out: str = _WAY_OUT) -> bytes:
    """Content of a regular file of at most `most` bytes."""
    size = regular_file(path, way_out=way_out)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(expected=f"a readable file {path.name}", found=str(error), way_out=way_out) from None
    require(len(content) <= most, f"{path.name} of at most {most} bytes", f"{size} bytes at {path}", way_out)
    return content


Content = bytes | Sequence[memoryview]
"""Content of a file, whole or in parts, which are not copied."""


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file as `write_once`, and removes what killed processes left of it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        number = left.suffixes[-2].removeprefix(".")
        if number.isdecimal() and not _runs(int(number)):
            left.unlink(missing_ok=True)
    write_once(path, content)


def write_once(path: Path, content: Content) -> tuple[int, str]:
    """Writes a file atomically, and returns its size and SHA-256: after a crash it is complete or absent.

    A failed write leaves nothing behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb", buffering=0) as file:
            written = _write_hashed(file, [memoryview(content)] if isinstance(content, bytes) else content)
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_folder(path.parent)
        return written
    except BaseException:  # also a signal that ends the process
        temporary.unlink(missing_ok=True)
        raise


def _write_hashed(file: io.RawIOBase, parts: Sequence[memoryview]) -> tuple[int, str]:
    """Writes parts one after the other, while another thread hashes them."""
    digest, size = hashlib.sha256(), 0
    with ThreadPoolExecutor(1) as hashing:
        futures = [hashing.submit(digest.update, part) for part in parts]
        for part in parts:
            size, rest = size + part.nbytes, part
            while rest:
                rest = rest[file.write(rest) or 0 :]
        for future in futures:
            future.result()
    return size, digest.hexdigest()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def flush_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
