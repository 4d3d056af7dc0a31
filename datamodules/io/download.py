"""Downloads, checked by hash and size, by one process while the others wait."""

import contextlib
import fcntl
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pooch

from protocol.errors import InputError


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


def fetch_once(name: str, root: Path, *, missing: Callable[[], bool], fetch: Callable[[], object]) -> None:
    """Fetches what is missing, in one process; the others wait until it is whole.

    Every rank of a training reads the data, and most do so before they know their rank. The lock is a file in `root`,
    so that it also holds between machines that share the disk; the system gives it back where a process dies.

    Args:
        name: of the data set.
        root: folder of the data sets.
        missing: whether anything is; asked again by every process that has waited.
        fetch: gets it.
    """
    with _alone(root / f".{name}.lock"):
        if missing():
            fetch()


def fetch_archive(archive: Archive, root: Path, *, target: Path) -> None:
    """Downloads a zip file with a progress bar, checks it, and unpacks it into `root`, unless `target` is there.

    Args:
        archive: the file.
        root: folder of the data sets.
        target: a file that it holds, where it will be unpacked to.

    Raises:
        InputError: it cannot be reached, or is not the file its owners describe.
    """
    fetch_once(target.parent.name, root, missing=lambda: not target.exists(), fetch=lambda: _fetch(archive, root))


def _fetch(archive: Archive, root: Path) -> None:
    name = archive.url.rsplit("/", 1)[-1]
    try:
        path = Path(pooch.retrieve(archive.url, f"md5:{archive.md5}", fname=name, path=root, progressbar=True))
        if path.stat().st_size != archive.size:
            raise _failed(archive, root, f"{path.stat().st_size} bytes instead of {archive.size}")
        _unpack(path, root)
    except (OSError, ValueError) as error:
        raise _failed(archive, root, str(error)) from error


def _unpack(path: Path, root: Path) -> None:
    """File by file, so that what is there is whole, whatever interrupts this."""
    with zipfile.ZipFile(path) as file, tempfile.TemporaryDirectory(dir=root) as unfinished:
        file.extractall(unfinished)
        for source in sorted(Path(unfinished).rglob("*")):
            place = root / source.relative_to(unfinished)
            if source.is_dir():
                place.mkdir(parents=True, exist_ok=True)
            else:
                source.replace(place)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Holds a lock; none where the folder cannot be written, because nobody can fetch into it then."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(path.open("a")), fcntl.LOCK_EX)
        yield


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
