"""Downloads that are checked by hash and made by one process while the others wait."""

import contextlib
import fcntl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pooch

from fedleak.core.errors import InputError
from fedleak.core.private_files import shared_files


@dataclass(frozen=True)
class Archive:
    """A zip file at the address at which the owners of a data set publish it, with the hash that they publish."""

    url: str
    md5: str


def fetch_once(name: str, root: Path, *, missing: Callable[[], bool], fetch: Callable[[], object]) -> None:
    """Fetches what is missing in one process; the others wait until it is complete.

    Every rank of a training reads the data, and most do so before they know their rank. The lock is a file in `root`,
    so it also holds between machines that share the disk. The operating system releases it if the process dies.
    """
    # Accounts of one machine may share the folder of the data sets, which are public.
    with shared_files(), _locked(root / f".{name}.lock"):
        if missing():
            fetch()


def fetch_archive(archive: Archive, root: Path, *, target: Path) -> None:
    """Downloads a zip file into `root` and extracts one file from it, unless that file exists.

    Args:
        archive: the zip file.
        root: folder of the data sets.
        target: the file; its path relative to `root` is its name in the archive.

    Raises:
        InputError: the archive cannot be downloaded, or has another hash than its owners publish.
    """

    def fetch() -> None:
        name = str(target.relative_to(root))
        try:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root) as unfinished:
                # Unpacked elsewhere and renamed, so that the target is there whole or not at all.
                unzip = pooch.Unzip(members=[name], extract_dir=unfinished)
                fname = archive.url.rsplit("/", 1)[-1]
                pooch.retrieve(
                    archive.url, f"md5:{archive.md5}", fname=fname, path=root, processor=unzip, progressbar=True
                )
                target.parent.mkdir(exist_ok=True)
                (Path(unfinished) / name).replace(target)
        except (OSError, ValueError) as error:
            raise InputError(
                expected=f"{archive.url} with md5 {archive.md5}",
                found=str(error),
                way_out=f"Download the file by hand and unpack it into {root}.",
            ) from error

    fetch_once(target.parent.name, root, missing=lambda: not target.exists(), fetch=fetch)


def fetch_torchvision(
    source: Callable[..., object], root: Path, *, name: str, missing: Callable[[], bool], way_out: str
) -> None:
    """Downloads a data set by its class in torchvision, which checks the files by hash."""
    try:
        fetch_once(name, root, missing=missing, fetch=lambda: source(root=root, download=True))
    except (OSError, RuntimeError) as error:
        raise InputError(expected=f"{name} from its origin", found=str(error).strip(), way_out=way_out) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock; none if the folder is not writable, because then no process can download into it."""
    with contextlib.ExitStack() as open_files:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            # The lock ends with the open file; if the process dies, the system closes it.
            lock_file = open_files.enter_context(path.open("a"))
            fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield
