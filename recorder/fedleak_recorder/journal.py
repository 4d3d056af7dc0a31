"""Journals of a recording: which files are whole, one line each, and whether one is missing.

Every rank has a journal of its own, because appends of several processes to one file are atomic on some file systems
only; the reader merges them.
"""

import dataclasses
import io
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from fedleak_recorder.errors import InputError
from fedleak_recorder.files import Content, check_stays_inside, open_private, read_bounded, write_once
from fedleak_recorder.manifest_fields import is_whole
from fedleak_recorder.plain_values import parse_json

LONGEST_JOURNAL = 2**30
"""Bytes; a line has about 150."""
JOURNAL_NAME = re.compile(r"journal(-[0-9]{4})?\.jsonl")
_LONGEST_LINE = 4096
_SHARD = re.compile(r"(rounds|truth)/\d{6,15}-\d{4,6}\.safetensors")


@dataclass(frozen=True)
class JournalLine:
    """One finished file: its path inside the recording, its size and its hash."""

    file: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if not isinstance(self.file, str) or not _SHARD.fullmatch(self.file):
            raise ValueError(f"the file {str(self.file)[:100]!r}")
        if not is_whole(self.bytes, 0, 2**62) or not isinstance(self.sha256, str):
            raise ValueError(f"bytes or sha256 of another kind for {self.file}")

    @property
    def round(self) -> int:
        """The round in the file's name."""
        return int(Path(self.file).name.split("-")[0])


@dataclass(frozen=True)
class Journal:
    """Content of a journal.

    Attributes:
        lines: the finished files; a later line of a file replaces an earlier one.
        closed: whether its writer finished, so that no line is missing.
    """

    lines: list[JournalLine]
    closed: bool = False


def journal_name(rank: int) -> str:
    """Path of a rank's journal."""
    return "journal.jsonl" if rank == 0 else f"journal-{rank:04d}.jsonl"


def journals_in(directory: Path) -> list[Path]:
    """The journals of a recording in the order of ranks; other files with similar names are ignored."""
    return sorted(path for path in directory.glob("journal*.jsonl") if JOURNAL_NAME.fullmatch(path.name))


def write_shard(directory: Path, name: str, content: Content) -> JournalLine:
    """Writes a shard and returns its line for the journal."""
    return JournalLine(name, *write_once(directory / name, content))  # `only_writer` removes unfinished ones


def append_journal(directory: Path, rank: int, lines: list[JournalLine]) -> None:
    """Adds finished files to the journal."""
    _append(directory / journal_name(rank), json_lines(lines))


def close_journal(directory: Path, rank: int, rounds: int) -> None:
    """Ends a journal with its number of files of rounds; a journal without it is of an unfinished training."""
    _append(directory / journal_name(rank), json.dumps({"closed": rounds}) + "\n")


def _append(path: Path, text: str) -> None:
    """Appends all of the lines or, on a full disk, none: another line must not follow a half one."""
    with open(path, "ab+", buffering=0, opener=open_private) as file:
        end = _end_of_lines(file)
        if end < file.seek(0, os.SEEK_END):
            file.truncate(end)
        rest = memoryview(text.encode())
        try:
            # An unbuffered write may take a part of the bytes.
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(end)
            raise


def _end_of_lines(file: io.FileIO) -> int:
    """Where the last whole line ends, before what a crash left of another one."""
    # A line is far shorter than what is read, so that the end of the last whole one is in it; if there is none, rfind
    # gives -1, and the lines end where the reading began.
    size = file.seek(0, os.SEEK_END)
    begin = file.seek(max(0, size - _LONGEST_LINE))
    return begin + file.read(_LONGEST_LINE).rfind(b"\n") + 1


def json_lines(lines: list[JournalLine]) -> str:
    """Content of a journal of these files that is not closed."""
    return "".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in lines)


def read_journal(path: Path) -> Journal:
    """Reads a journal; a last line cut by a crash is left out, and a later line of a file replaces an earlier one.

    Raises:
        InputError: a line in the middle is broken, names a file outside the recording, or a line is missing; or the
            journal is a link that leads out of the recording.
    """
    check_stays_inside(path.parent, path.name)
    text = read_bounded(path, most=LONGEST_JOURNAL).decode(errors="replace")
    lines: dict[str, JournalLine] = {}
    rounds = 0
    closed = False
    # What follows the last end of a line is nothing, or a line that a crash cut.
    whole_lines = text.split("\n")[:-1]
    for number, line in enumerate(whole_lines, start=1):
        try:
            entry = _journal_entry(line)
            if isinstance(entry, JournalLine):
                if entry.file not in lines and entry.file.startswith("rounds/"):
                    rounds += 1
                lines[entry.file] = entry
                closed = False  # a training that went on after its end is open again
            else:
                if entry != rounds:
                    raise ValueError(f"{entry} files of rounds, where {rounds} are named")
                closed = True
        except (ValueError, TypeError) as error:
            raise InputError(
                expected="journal lines naming a file under rounds/ or truth/, its bytes and sha256, all of them",
                found=f"{error} in line {number} of {path}",
                way_out="The recording is damaged or foreign: copy it again, whole, or record again.",
            ) from None
    return Journal(list(lines.values()), closed)


def _journal_entry(line: str) -> JournalLine | int:
    """A finished file, or the number of files of rounds in a closing line."""
    content = parse_json(line, where="a line")
    if set(content) == {"closed"}:
        if type(content["closed"]) is not int:
            raise ValueError("no number of files")
        return content["closed"]
    return JournalLine(**content)
