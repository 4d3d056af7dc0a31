"""Copy of a recording in other storage, such as an object store, which follows the recording while it is written.

``python -m fedleak_recorder.remote URL FOLDER`` copies such a copy back, for an audit.
"""

import importlib
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from fedleak_recorder.errors import InputError, require
from fedleak_recorder.format import AUXILIARY, MANIFEST, JournalLine, journals_in, read_journal

_logger = logging.getLogger(__name__)


class RemoteCopy:
    """Copy of a recording under a URL of fsspec, e.g. ``s3://bucket/run``.

    The folder on the disk stays the recording: what is said of crashes holds for it, and the copy may lack its last
    rounds. Shards are copied before the journal that names them, so that the copy is at any time a recording of the
    rounds that its journal has. That needs storage that replaces a file in one step, as object stores do; elsewhere,
    e.g. by SFTP, a journal that is cut short is read up to its last whole line.

    Args:
        url: folder of the copy, of a protocol of fsspec whose package is installed, e.g. s3fs for ``s3``.
        options: options of that file system, e.g. ``endpoint_url``; secrets are best in its environment variables.

    Raises:
        InputError: fsspec or the package of the protocol is not installed, or the URL is none.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        try:
            self._files, self._root = importlib.import_module("fsspec").url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise InputError(
                expected="a URL of fsspec for the copy of the recording, and the package of its protocol",
                found=f"{url} ({error})",
                way_out='Install "fedleak-recorder[remote]" and that package, e.g. s3fs, or record to the disk alone.',
            ) from None
        self._copied: dict[str, JournalLine] | None = None

    def check_free(self) -> None:
        """Checks that the storage holds no recording there."""
        taken = self._files.exists(f"{self._root}/{MANIFEST}")
        require(not taken, "storage without a recording", f"one in {self.url}", "Give another URL, or delete that one.")

    def follow(self, folder: Path) -> None:
        """Copies what the copy lacks of a recording.

        Raises:
            OSError: the storage does not take it.
        """
        if self._copied is None:
            self._copied = self._lines_of_copy()
        journals = journals_in(folder)
        lines = [line for journal in journals for line in read_journal(journal).lines]
        for line in lines:
            if self._copied.get(line.file) != line:
                self._put(folder, line.file)
        for name in (AUXILIARY, MANIFEST, *(journal.name for journal in journals)):
            if (folder / name).exists():
                self._put(folder, name)
        self._copied = {line.file: line for line in lines}

    def try_to_follow(self, folder: Path) -> None:
        """The same; a failure is a warning, because the next round copies what is missing."""
        try:
            self.follow(folder)
        except Exception as error:  # whatever a file system raises: the training goes on
            _logger.warning("the copy in %s lacks the last rounds: %s: %s", self.url, type(error).__name__, error)

    def fetch(self, folder: Path) -> None:
        """Copies the copy into a folder that does not exist yet."""
        require(not folder.exists(), "a folder that does not exist", str(folder), "Give another one.")
        found = self._files.exists(f"{self._root}/{MANIFEST}")
        require(found, f"a recording in {self.url}", f"no {MANIFEST}", "Correct the URL.")
        self._files.get(self._root, str(folder), recursive=True)

    def _lines_of_copy(self) -> dict[str, JournalLine]:
        """Lines of the journals of an earlier copy; none if there is none."""
        if not self._files.exists(f"{self._root}/{MANIFEST}"):
            return {}
        with tempfile.TemporaryDirectory() as folder:
            for path in map(str, self._files.ls(self._root, detail=False)):
                name = path.rpartition("/")[2]
                if name.startswith("journal"):
                    self._files.get_file(path, f"{folder}/{name}")
            lines = [line for journal in journals_in(Path(folder)) for line in read_journal(journal).lines]
        return {line.file: line for line in lines}

    def _put(self, folder: Path, name: str) -> None:
        self._files.makedirs(f"{self._root}/{name}".rpartition("/")[0], exist_ok=True)
        self._files.put_file(str(folder / name), f"{self._root}/{name}")


def main() -> int:
    """The command."""
    if len(sys.argv) != 3:
        print("python -m fedleak_recorder.remote URL FOLDER", file=sys.stderr)
        return 2
    os.umask(0o077)  # a recording is for its owner only
    try:
        RemoteCopy(sys.argv[1]).fetch(Path(sys.argv[2]))
    except (InputError, OSError) as error:
        print(f"fedleak_recorder.remote: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
