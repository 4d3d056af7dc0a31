"""Copy of a recording in other storage, such as an object store, which follows the recording while it is written.

``python -m fedleak_recorder.remote URL FOLDER`` copies such a copy back, for an audit.
"""

import contextlib
import hashlib
import importlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedleak_recorder.errors import InputError, require
from fedleak_recorder.files import MOST_TEXT
from fedleak_recorder.format import AUXILIARY, MANIFEST, NEXT_MANIFEST, SEAL, read_manifest, sealed, whole_manifest
from fedleak_recorder.journal import JOURNAL_NAME, LONGEST_JOURNAL, JournalLine, journals_in, read_journal
from fedleak_recorder.urls import hide, without_secrets

_logger = logging.getLogger(__name__)
_AT_ONCE = 2**20
"""Bytes that are read from the storage at a time."""
_LARGEST_AUXILIARY = 2**40
"""Bytes of auxiliary data, of which no journal gives the number."""


class RemoteCopy:
    """Copy of a recording under a URL of fsspec, e.g. ``s3://bucket/run``.

    The folder on the disk stays the recording: what is said of crashes holds for it, and the copy may lack its last
    rounds. Shards are copied before the journal that names them, so that the copy is at any time a recording of the
    rounds that its journal has. That needs storage that replaces a file in one step, as object stores do. Elsewhere,
    e.g. by SFTP, a writer that is killed leaves a file cut short: a journal is read up to its last whole line, and the
    manifest, which is written only when it changes, is first written to ``manifest.json.next`` with a checksum, so that
    one of the two is whole and is read.

    Storage may be a stranger's: `fetch` copies the files that a recording has, by names of their own grammar, and
    nothing else that is listed there; links are refused.

    Args:
        url: folder of the copy, of a protocol of fsspec whose package is installed, e.g. s3fs for ``s3``.
        options: options of that file system, e.g. ``endpoint_url``; secrets are best in its environment variables.

    Attributes:
        url: the URL without user, password, key and signature, as messages have it.

    Raises:
        InputError: fsspec or the package of the protocol is not installed, or the URL is none.
    """

    def __init__(self, url: str, **options: Any) -> None:
        is_text = isinstance(url, str) and url != ""
        require(
            is_text, "a URL of fsspec, as a text", type(url).__name__ if not is_text else "", "E.g. s3://bucket/run."
        )
        self.url = without_secrets(url)
        self._url_with_secrets = url
        self._options = options
        try:
            self._files, self._root = importlib.import_module("fsspec").url_to_fs(url, **options)
        except Exception as error:  # whatever the package of a protocol raises
            raise InputError(
                expected="a URL of fsspec for the copy of the recording, and the package of its protocol",
                found=f"{self.url} ({self._described(error)})",
                way_out='Install "fedleak-recorder[remote]" and that package, e.g. s3fs, or record to the disk alone.',
            ) from None
        self._copied: dict[str, JournalLine] | None = None
        self._manifest: bytes | None = None
        """The manifest that the copy has; None if that is not known."""

    def check_free(self) -> None:
        """Checks that the storage holds no recording there."""
        with self._in_storage("storage that can be read"):
            taken = self._files.exists(self._path(MANIFEST)) or self._files.exists(self._path(NEXT_MANIFEST))
        require(not taken, "storage without a recording", f"one in {self.url}", "Give another URL, or delete that one.")

    def follow(self, folder: Path) -> None:
        """Copies what the copy lacks of a recording.

        Raises:
            InputError: the storage does not take it.
        """
        with self._in_storage("storage that takes the copy"):
            if self._copied is None:
                self._copied = self._lines_of_copy()
            journals = journals_in(folder)
            journal_lines = _lines_of(journals)
            # First the shards, then the manifest, at last the journals that name the shards: at any time the copy is a
            # recording of the rounds that its journals have.
            for line in journal_lines:
                if self._copied.get(line.file) != line:
                    self._put(folder, line.file)
            if (folder / AUXILIARY).exists():
                self._put(folder, AUXILIARY)
            if (folder / MANIFEST).exists():
                self._put_manifest((folder / MANIFEST).read_bytes())
            for journal in journals:
                self._put(folder, journal.name)
            self._copied = {line.file: line for line in journal_lines}

    def try_to_follow(self, folder: Path) -> None:
        """The same; a failure is a warning, because the next round copies what is missing."""
        try:
            self.follow(folder)
        except InputError as error:
            _logger.warning("the copy in %s lacks the last rounds: %s", self.url, error.found)

    def fetch(self, folder: Path) -> None:
        """Copies the copy into a folder that does not exist yet; it is there only if all of it was copied.

        Raises:
            InputError: there is no such copy, it is damaged, or the storage names something that no recording has.
        """
        require(not folder.exists(), "a folder that does not exist", str(folder), "Give another one.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
        try:
            with self._in_storage("a copy that can be read"), _named(unfinished, self.url):
                self._fetch_into(unfinished)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _fetch_into(self, folder: Path) -> None:
        # Names come from the format and from journals, whose lines accept names of shards alone: nothing that the
        # storage lists is joined to the path of a folder.
        manifests = [name for name in (MANIFEST, NEXT_MANIFEST) if self._is_there(name)]
        require(manifests, f"a recording in {self.url}", f"no {MANIFEST}", "Correct the URL.")
        for name in manifests:
            self._get(name, folder, most=MOST_TEXT + SEAL)
        # One of the two is whole, and is what the folder has as its manifest.
        manifest = read_manifest(folder)
        content = whole_manifest(folder)
        (folder / MANIFEST).write_bytes(content)
        (folder / NEXT_MANIFEST).unlink(missing_ok=True)
        for name in self._journals():
            self._get(name, folder, most=LONGEST_JOURNAL)
        if manifest.auxiliary is not None:
            self._get(AUXILIARY, folder, most=_LARGEST_AUXILIARY, sha256=manifest.auxiliary)
        # A recording is passed on without ground truth by leaving out the whole folder.
        has_truth = self._files.exists(self._path("truth"))
        shards = {}
        for line in _lines_of(journals_in(folder)):
            if has_truth or not line.file.startswith("truth/"):
                shards[line.file] = line
        # A folder that is a link would lead every file in it elsewhere.
        for kind in {name.partition("/")[0] for name in shards}:
            self._check_kind(kind, "directory")
        for name, line in shards.items():
            self._get(name, folder, most=line.bytes, sha256=line.sha256)

    def _journals(self) -> list[str]:
        """Names of the journals in the storage; whatever else it lists is left where it is."""
        names = set()
        for path in self._files.ls(self._root or "/", detail=False):
            name = str(path).rstrip("/").rpartition("/")[2]
            if JOURNAL_NAME.fullmatch(name):
                names.add(name)
        return sorted(names)

    def _get(self, name: str, folder: Path, *, most: int, sha256: str | None = None) -> None:
        """Copies one file of at most some number of bytes, whose hash is known or not."""
        self._check_kind(name, "file")
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        digest = hashlib.sha256()
        # Counted while it is read: what a stranger's storage says of a file's size need not be so.
        with self._files.open(self._path(name), "rb") as source, target.open("xb") as copy:
            while part := source.read(_AT_ONCE):
                size += len(part)
                require(size <= most, f"{name} of at most {most} bytes", "more", "Copy it again, or record again.")
                digest.update(part)
                copy.write(part)
        is_expected = sha256 is None or digest.hexdigest() == sha256
        way_out = "If it is being written, copy it again; else it is damaged: record again."
        require(is_expected, f"{name} with the checksum that the copy names", "another one", way_out)

    def _is_there(self, name: str) -> bool:
        return bool(self._files.exists(self._path(name)))

    def _check_kind(self, name: str, kind: str) -> None:
        """Checks that a name of the storage is a file or a folder, and no link."""
        about = self._files.info(self._path(name))
        # File systems of fsspec tell of a link by one of two keys.
        is_expected = about.get("type") == kind and not about.get("islink") and about.get("destination") is None
        description = str(about.get("type", "something else"))
        if about.get("islink"):
            description += ", a link"
        require(is_expected, f"{name} as a {kind} of the copy", description, "Copy the target of a link, not the link.")

    def _lines_of_copy(self) -> dict[str, JournalLine]:
        """Lines of the journals of an earlier copy; none if there is none."""
        if not self._is_there(MANIFEST):
            return {}
        with tempfile.TemporaryDirectory() as folder:
            for name in self._journals():
                self._get(name, Path(folder), most=LONGEST_JOURNAL)
            journal_lines = _lines_of(journals_in(Path(folder)))
        return {line.file: line for line in journal_lines}

    def _put_manifest(self, content: bytes) -> None:
        """Writes the manifest if it is another one, so that a reader finds a whole one at any time.

        Storage that does not replace in one step has a file cut short while it is written. The other one, with a
        checksum, is written first: while it is cut short, the old manifest is whole, and then it is itself.
        """
        if self._manifest == content:
            return
        self._put_bytes(NEXT_MANIFEST, sealed(content))
        self._put_bytes(MANIFEST, content)
        with contextlib.suppress(Exception):  # storage may forbid to delete; a manifest that is left says the same
            self._files.rm_file(self._path(NEXT_MANIFEST))
        self._manifest = content

    def _put(self, folder: Path, name: str) -> None:
        self._files.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
        self._files.put_file(str(folder / name), self._path(name))

    def _put_bytes(self, name: str, content: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / name).write_bytes(content)
            self._put(Path(folder), name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextlib.contextmanager
    def _in_storage(self, expected: str) -> Iterator[None]:
        """Turns whatever a file system raises into one error, without the secrets of the URL."""
        try:
            yield
        except InputError as error:
            raise InputError(
                expected=self._hidden(error.expected),
                found=self._hidden(error.found),
                way_out=error.way_out,
            ) from None
        except Exception as error:
            way_out = "Check the URL, the network and the permissions; what is on the disk is whole."
            raise InputError(
                expected=f"{expected}: {self.url}", found=self._described(error), way_out=way_out
            ) from None

    def _described(self, error: Exception) -> str:
        """An error in one line, without the secrets of the URL."""
        return self._hidden(f"{type(error).__name__}: {' '.join(str(error).split())}")

    def _hidden(self, text: str) -> str:
        return hide(text, self._url_with_secrets, self._options)


def _lines_of(journals: list[Path]) -> list[JournalLine]:
    """The finished files of several journals."""
    journal_lines = []
    for journal in journals:
        journal_lines += read_journal(journal).lines
    return journal_lines


@contextlib.contextmanager
def _named(folder: Path, url: str) -> Iterator[None]:
    """Names the copy in errors, in place of a folder that is gone when they are read."""
    try:
        yield
    except InputError as error:
        raise InputError(
            expected=error.expected.replace(str(folder), url),
            found=error.found.replace(str(folder), url),
            way_out=error.way_out,
        ) from None


def main() -> int:
    """The command."""
    if len(sys.argv) != 3:
        print("python -m fedleak_recorder.remote URL FOLDER", file=sys.stderr)
        return 2
    os.umask(0o077)  # a recording is for its owner only
    try:
        RemoteCopy(sys.argv[1]).fetch(Path(sys.argv[2]))
    except (InputError, OSError) as error:
        print(f"fedleak_recorder.remote: {without_secrets(str(error))}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
