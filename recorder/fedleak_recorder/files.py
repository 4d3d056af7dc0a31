"""Reading and writing of whole files; those of strangers must be regular files of bounded size.

In place of a file there may be a pipe that never ends, or a link to a device; the functions below refuse them. What is
written holds ground truth, secret keys or scores of persons: files are created for their owner only (0600), in folders
that are (0700), whatever the umask allows.
"""

import glob
import hashlib
import io
import os
import shlex
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fedleak_recorder.errors import InputError, require

MOST_TEXT = 2**26
"""Bytes of a manifest or of a list of names."""
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
"""Permissions of what is written."""
_OTHERS, READ_BY_OTHERS = 0o077, 0o044
"""Permissions of the group and of others."""
_WAY_OUT = "Give a regular file; copy the target of a link together with the rest of the folder."


def regular_file(path: Path, *, way_out: str = _WAY_OUT) -> int:
    """Size in bytes of a regular file; links are followed.

    Raises:
        InputError: it is missing, or a folder, a pipe or a device.
    """
    try:
        status = path.stat()
    except (OSError, ValueError):
        raise InputError(expected=f"the file {path.name}", found=f"nothing at {path}", way_out=way_out) from None
    expected = f"{path.name} as a regular file"
    require(stat.S_ISREG(status.st_mode), expected, f"a folder, a pipe or a device at {path}", way_out)
    return status.st_size


def check_stays_inside(folder: Path, name: str) -> None:
    """Refuses a file of a folder that is a link, or below a link, to something outside of the folder.

    Raises:
        InputError: it leads out of the folder.
    """
    path = folder
    # A link anywhere on the way leads out, not at the last part alone.
    for part in Path(name).parts:
        path = path / part
        if path.is_symlink():
            target = path.resolve()
            is_inside = target.is_relative_to(folder.resolve())
            way_out = "Copy the target of the link into the folder, in place of the link."
            require(is_inside, f"{name} as a regular file of {folder}", f"a link to {target}", way_out)


def read_bounded(path: Path, *, most: int = MOST_TEXT, way_out: str = _WAY_OUT) -> bytes:
    """Content of a regular file of at most `most` bytes."""
    # The size that is looked up may change until the file is read, so that one byte more than allowed is asked for.
    size = regular_file(path, way_out=way_out)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(expected=f"a readable file {path.name}", found=str(error), way_out=way_out) from None
    require(len(content) <= most, f"{path.name} of at most {most} bytes", f"{size} bytes at {path}", way_out)
    return content


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it, for their owner only; those that exist are not changed."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(PRIVATE_FOLDER, exist_ok=True)
    folder.mkdir(exist_ok=True)  # an error if it is a file


def open_private(path: str | Path, flags: int) -> int:
    """Opens a file, which is created for its owner only; an `opener` of `open`."""
    return os.open(path, flags, PRIVATE_FILE)


def openness(folder: Path, *, readable: str = "") -> str:
    """A sentence that says that other accounts may read in a folder; empty if they may not.

    Args:
        folder: the folder.
        readable: name of the file that those who may read the folder may read too; empty for none.
    """
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not mode & _OTHERS:
        return ""
    may_look = f"other accounts may look into {folder} (mode {mode:04o})"
    if readable and mode & READ_BY_OTHERS:
        return f"{may_look}. What is written there now is for its owner only, except {readable}"
    close = f"chmod -R go= {shlex.quote(str(folder))}"
    return f"{may_look}. What is written there now is for its owner only; for what was there before: {close}"


Content = bytes | Sequence[memoryview]
"""Content of a file, whole or in parts, which are not copied."""


def write_whole(path: Path, content: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Writes a file as `write_once`, and removes what killed processes left of it."""
    remove_left(path)
    write_once(path, content, mode=mode)


def remove_left(path: Path) -> None:
    """Removes the temporary files of a file, ``.NAME.PID.tmp``, whose processes run no more."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        # The suffixes of .NAME.PID.tmp end in .PID and .tmp.
        number = temporary.suffixes[-2].removeprefix(".")
        if number.isdecimal() and not _runs(int(number)):
            temporary.unlink(missing_ok=True)


def write_once(path: Path, content: Content, *, mode: int = PRIVATE_FILE) -> tuple[int, str]:
    """Writes a file atomically, and returns its size and SHA-256: after a crash it is complete or absent.

    A failed write leaves nothing behind. The file is new, so that it has the given permissions even if it replaces one
    that others may read.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # of a killed process with this number: its permissions may be others
    try:
        with open(temporary, "xb", buffering=0, opener=open_private) as file:
            if mode != PRIVATE_FILE:
                os.fchmod(file.fileno(), mode)
            parts = [memoryview(content)] if isinstance(content, bytes) else content
            written = _write_hashed(file, parts)
            # First the content is on the disk, then the name leads to it, then the name is on the disk too.
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_folder(path.parent)
        return written
    except BaseException:  # also a signal that ends the process
        temporary.unlink(missing_ok=True)
        raise


def _write_hashed(file: io.RawIOBase, parts: Sequence[memoryview]) -> tuple[int, str]:
    """Writes parts one after the other, while another thread hashes them."""
    digest = hashlib.sha256()
    size = 0
    with ThreadPoolExecutor(1) as hashing:
        # One thread takes the parts in their order; the hash does not hold the interpreter's lock meanwhile.
        futures = [hashing.submit(digest.update, part) for part in parts]
        for part in parts:
            size += part.nbytes
            rest = part
            while rest:
                rest = rest[file.write(rest) or 0 :]
        for future in futures:
            future.result()
    return size, digest.hexdigest()


def _runs(process: int) -> bool:
    """Whether a process runs; one that has ended, and that no parent has asked about yet, does not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another account
        return True
    return not _has_ended(process)


def _has_ended(process: int) -> bool:
    """Whether a process that still has its number is a zombie; False where there is no /proc to read it from."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return False
    # The state follows the name of the program, which may hold spaces and brackets itself.
    return status.rpartition(")")[2].split()[:1] == ["Z"]


def flush_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
