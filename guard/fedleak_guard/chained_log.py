"""Log of a site: one JSON object a line, each with the hash of the one before, so that no entry can be changed."""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedleak_recorder.errors import InputError, require
from fedleak_recorder.files import flush_folder, make_folder
from fedleak_recorder.plain_values import parse_json, strange_value

NAME = "log.jsonl"
FIRST = "0" * 64
"""Hash before the first entry."""
_WAY_OUT = "Keep the file as evidence, and move it away to start a new log, whose budget starts from zero."


class ChainedLog:
    """Append-only log, of which an entry is either whole or absent, also after a crash and on a full disk.

    An entry has ``number``, ``previous`` (hash of the entry before) and ``hash``, the SHA-256 of the entry without it
    as JSON with sorted keys and without spaces.

    Args:
        folder: folder of the log, made where it is missing.
        name: name of its file.

    Attributes:
        entries: all entries that were read; use it inside `locked`.
    """

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self.path = folder / name
        self.entries: list[dict[str, Any]] = []
        self._read = 0
        """Bytes of the file that `entries` hold."""
        self._head_at_end = FIRST

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the log against other processes, and reads what they appended.

        Raises:
            InputError: the chain is broken, or the log is shorter than it was.
            OSError: the folder cannot be written.
        """
        # O_APPEND: whatever is written goes to the end. A new name is flushed, so that a power cut does not take it.
        is_new = not self.path.exists()
        if is_new:
            make_folder(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if is_new:
                flush_folder(self.path.parent)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._descriptor = descriptor
            self._read_new()
            yield
        finally:
            os.close(descriptor)

    @property
    def head(self) -> str:
        """Hash of the last entry."""
        return self._head_at_end

    def append(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Appends an entry and waits until the disk has it; only inside `locked`.

        Raises:
            InputError: it holds what a reader of the log would refuse; then the log is as before.
            OSError: it could not be written whole; then the log is as before.
        """
        chained_entry = {"number": len(self.entries), "previous": self.head, **entry}
        problem = strange_value(chained_entry)
        require(problem is None, "an entry that the log can hold", problem, "Nothing of the message left the site.")
        chained_entry["hash"] = entry_hash(chained_entry)
        line = json.dumps(chained_entry, allow_nan=False).encode() + b"\n"
        try:
            # One write, of which a full disk may take a part; nothing else writes while the log is locked.
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(f"{written} of {len(line)} bytes written to {self.path}")
            os.fsync(self._descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._read)
            raise
        self._keep(chained_entry, len(line))
        return chained_entry

    def _keep(self, entry: dict[str, Any], size: int) -> None:
        """Counts an entry that the disk has."""
        self.entries.append(entry)
        self._read += size
        self._head_at_end = entry["hash"]

    def _read_new(self) -> None:
        """Reads what other processes appended, and removes half an entry of one that was killed."""
        size = os.fstat(self._descriptor).st_size
        if size < self._read:
            shrinkage = f"{size} bytes after {self._read} in {self.path}"
            raise InputError(expected="a log that only grows", found=shrinkage, way_out=_WAY_OUT)
        content = os.pread(self._descriptor, size - self._read, self._read)
        # Up to the last end of a line; without one, rfind gives -1, and nothing is whole.
        whole_lines = content[: content.rfind(b"\n") + 1]
        for entry, length in chained(whole_lines, self.head, len(self.entries), str(self.path)):
            self._keep(entry, length)
        if len(whole_lines) < len(content):  # a crash in the middle of an entry, of which nothing left the site
            os.ftruncate(self._descriptor, self._read)


def chained(content: bytes, head: str, number: int, where: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Entries of whole lines that continue a chain, with their lengths in bytes.

    Args:
        content: the lines.
        head: hash of the entry before the first one.
        number: number of the first one.
        where: file, for errors.

    Raises:
        InputError: a line is no entry, or does not continue the chain.
    """
    for line in content.splitlines(keepends=True):
        try:
            entry = parse_json(line, where=where)
        except ValueError as error:
            raise _broken(number, where, str(error)) from None
        # The hash of the entry before is a part of what an entry's own hash is of: a change shows in all that follow.
        if not isinstance(entry, dict) or entry.get("number") != number or entry.get("previous") != head:
            raise _broken(number, where, "an entry that does not follow the one before")
        if entry.get("hash") != entry_hash(entry):
            raise _broken(number, where, "an entry that was changed")
        head = entry["hash"]
        number += 1
        yield entry, len(line)


def entry_hash(entry: Mapping[str, Any]) -> str:
    """SHA-256 of an entry without its own hash."""
    rest = {key: value for key, value in entry.items() if key != "hash"}
    # Sorted keys and no spaces: the same entry has one text, whatever wrote it.
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_log(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All entries of a log, and the number of bytes of an incomplete last one.

    Raises:
        InputError: the file cannot be read, or its chain is broken.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(expected="a log", found=str(error), way_out="Give the path of log.jsonl.") from None
    whole_lines = content[: content.rfind(b"\n") + 1]
    entries = [entry for entry, _ in chained(whole_lines, FIRST, 0, str(path))]
    return entries, len(content) - len(whole_lines)


def _broken(number: int, where: str, fault: str) -> InputError:
    expected = f"entry {number} of an unbroken chain"
    return InputError(expected=expected, found=f"{fault} in {where}", way_out=_WAY_OUT)
