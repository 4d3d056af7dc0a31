"""Format of recordings on disk: names of files, manifest and journal.

A shard is written under a temporary name, flushed, renamed, then journalled, so that all files in the journal are
complete after a crash at any time. Every rank has a journal of its own, because appends of several processes to one
file are atomic on some file systems only; the reader merges them.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedleak_recorder.errors import InputError, require
from fedleak_recorder.files import (
    MOST_TEXT,
    Content,
    check_stays_inside,
    make_folder,
    open_private,
    read_bounded,
    write_once,
)
from fedleak_recorder.manifest_fields import check_fields, is_whole
from fedleak_recorder.plain_values import parse_json

FORMAT = 1
MANIFEST = "manifest.json"
NEXT_MANIFEST = "manifest.json.next"
"""The manifest again with a checksum, in copies in storage that does not replace a file in one step; see `sealed`."""
SEAL = 65
"""Bytes that `sealed` adds: a SHA-256 in hexadecimal and the end of the line."""
AUXILIARY = "auxiliary.safetensors"
"""Auxiliary data of the server, the same for all rounds and clients."""
LOCK = ".lock"
"""Empty file, locked by the process that writes to the folder."""
_UNFINISHED = re.compile(
    r"\.(?:manifest\.json|auxiliary\.safetensors|journal(?:-\d{4})?\.jsonl|\d{6,}-\d{4,}\.safetensors|training\.json)\.\d+\.tmp"
)
"""Files that `write_once` leaves if its process is killed."""
CLIENT = "client/"
"""Prefix of ground truth about a client itself; other names in truth/ are about its served items."""
PRIOR = "prior/"
"""Prefix of what the server is assumed to know about each client; see `RoundView.priors`."""
ROUND_SETTINGS = "round_settings"
"""Key of a manifest's `config`: additional columns of scores by round."""
RECORDED_CLIENTS = "recorded_clients"
"""Key of a manifest's `config`: number of clients of each round that are recorded, drawn at random."""
MODEL = "model/"
"""Prefix of the global model's parameters in rounds/."""
CLIENT_MODEL = "client_model/"
"""Prefix of parameters in rounds/ of which the server sent each client its own."""
ITEM_FEATURES = "item_features"
"""Features of the served items in rounds/, if all clients of a shard share them."""
HOLDOUT_USERS = "holdout_users"
"""``(H,)`` in the auxiliary data: hold-out users, whose data represent unseen users; absent if there are none."""
POPULARITY_OF_OTHERS = "popularity_of_others"
"""``(F, I)`` in the auxiliary data: number of users outside each fold who interacted with each item."""
ATTRIBUTE_PSEUDONYMS = "attribute_pseudonyms"
"""Auxiliary ``(P,)``: pseudonyms of the people whose attributes the server knows."""
ATTRIBUTE = "attribute/"
"""Prefix of auxiliary ``(P,)``: value from 0 of an attribute of these people, -1 where it is unknown."""
CANARY_PSEUDONYMS = "canary_pseudonyms"
"""Auxiliary ``(N,)``: pseudonyms of the canaries."""
CANDIDATES, CANDIDATE_LABELS = "candidates", "candidate_labels"
"""Auxiliary ``(M, *shape)`` and ``(M,)``: records that the server has in mind, and their classes."""
LONGEST_JOURNAL = 2**30
"""Bytes; a line has about 150."""
JOURNAL_NAME = re.compile(r"journal(-[0-9]{4})?\.jsonl")
_LONGEST_LINE = 4096
_MOST_SUGGESTED = 5
"""Recordings that an error names at most."""
_SHARD = re.compile(r"(rounds|truth)/\d{6,15}-\d{4,6}\.safetensors")


@dataclass(frozen=True)
class Manifest:
    """Description of the whole recording.

    Attributes:
        parameters: recorded public parameters: ``{"shape": [...], "dtype": "float32"}`` by name.
        row_parameters: parameters of which only the served rows are stored.
        learner: the clients' public algorithm by name and arguments; None if it is unknown.
        releases: what clients publicly do to their deltas before sending.
        seed: seed of the run; None in a recording of another system.
        data: name and hash of the data.
        config: configuration of the run.
        versions: versions of packages.
        commit: commit of the code; None outside a checkout.
        auxiliary: hash of the auxiliary data; None if there are none.
        run: random name of the training, kept when it is resumed; None in a recording of another system.
        format: version of the format.
    """

    parameters: dict[str, dict[str, Any]]
    row_parameters: list[str]
    learner: dict[str, Any] | None
    releases: list[dict[str, Any]]
    seed: int | None
    data: dict[str, str]
    config: dict[str, Any]
    versions: dict[str, str]
    commit: str | None
    auxiliary: str | None = None
    run: str | None = None
    format: int = FORMAT

    @property
    def double(self) -> bool:
        """Whether all deltas are recorded in float64; views then hold models and deltas of that type, else float32."""
        return bool(self.parameters) and all(one["dtype"] == "float64" for one in self.parameters.values())

    def same_run(self, other: "Manifest") -> bool:
        """Whether shards of both may be in one recording."""
        ours, theirs = (json.loads(json.dumps(dataclasses.asdict(m))) for m in (self, other))
        same = ("parameters", "row_parameters", "learner", "releases", "seed", "data", "auxiliary", "run")
        return all(ours[key] == theirs[key] for key in same)


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


def shard_name(kind: str, round_number: int, rank: int) -> str:
    """Path of a shard inside the recording; `kind` is ``rounds`` or ``truth``."""
    return f"{kind}/{round_number:06d}-{rank:04d}.safetensors"


def journal_name(rank: int) -> str:
    """Path of a rank's journal."""
    return "journal.jsonl" if rank == 0 else f"journal-{rank:04d}.jsonl"


def journals_in(directory: Path) -> list[Path]:
    """The journals of a recording in the order of ranks; other files with similar names are ignored."""
    return sorted(path for path in directory.glob("journal*.jsonl") if JOURNAL_NAME.fullmatch(path.name))


@contextlib.contextmanager
def only_writer(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Locks a folder for one writing process; the lock ends with the process.

    Unfinished temporary files of killed writers are removed.

    Args:
        folder: the folder; created if it does not exist.
        wait: wait until another process that holds the lock has ended.

    Raises:
        InputError: another process holds the lock, and `wait` is False.
        OSError: the folder cannot be created or written to.
    """
    make_folder(folder)
    with open(folder / LOCK, "a", opener=open_private) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                expected="a folder that no other process writes to",
                found=f"one that writes to {folder}",
                way_out="Wait until it has ended, or give another folder.",
            ) from None
        for left in (*folder.glob(".*.tmp"), *folder.glob("rounds/.*.tmp"), *folder.glob("truth/.*.tmp")):
            if _UNFINISHED.fullmatch(left.name):
                left.unlink(missing_ok=True)
        yield


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
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(end)
            raise


def _end_of_lines(file: io.FileIO) -> int:
    """Where the last whole line ends, before what a crash left of another one."""
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
    closed, rounds = False, 0
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            entry = _journal_entry(line)
            if isinstance(entry, JournalLine):
                rounds += entry.file not in lines and entry.file.startswith("rounds/")
                lines[entry.file] = entry
            elif entry != rounds:
                raise ValueError(f"{entry} files of rounds, where {rounds} are named")
            closed = isinstance(entry, int)
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


def sealed(content: bytes) -> bytes:
    """A file's content behind a line with its SHA-256, by which a file that was cut short is recognised.

    Example:
        >>> unsealed(sealed(b"{}")), unsealed(sealed(b"{}")[:-1])
        (b'{}', None)
    """
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def unsealed(file: bytes) -> bytes | None:
    """Content of a `sealed` file; None if it is not whole."""
    digest, _, content = file.partition(b"\n")
    return content if hashlib.sha256(content).hexdigest().encode() == digest else None


def whole_manifest(directory: Path) -> bytes:
    """Content of a recording's manifest; of a copy whose writer was killed at it, that of the whole one beside it.

    Raises:
        InputError: there is none.
    """
    path = directory / MANIFEST
    way_out = "Give the folder that the recorder wrote, e.g. runs/NAME/deltas."
    follows = (directory / NEXT_MANIFEST).exists()
    if not path.exists() and not follows:
        recordings = _recordings_below(directory)
        if recordings:
            way_out = f"Did you mean {' or '.join(recordings)}?"
        raise InputError(expected=f"a recording with a {MANIFEST}", found=f"none in {directory}", way_out=way_out)
    for name in (MANIFEST, NEXT_MANIFEST):
        check_stays_inside(directory, name)
    content = read_bounded(path, way_out=way_out) if path.exists() else b""
    if follows and not _is_object(content):
        other = unsealed(read_bounded(directory / NEXT_MANIFEST, most=MOST_TEXT + SEAL))
        content = content if other is None else other
    return content


def _recordings_below(directory: Path) -> list[str]:
    """Folders with a manifest in a folder, or in the folders there, as a training and several of them write."""
    manifests = sorted(directory.glob(f"*/{MANIFEST}")) or sorted(directory.glob(f"*/*/{MANIFEST}"))
    return [str(manifest.parent) for manifest in manifests[:_MOST_SUGGESTED]]


def _is_object(content: bytes) -> bool:
    """Whether a file's content is a JSON object, as no part of one is."""
    try:
        return isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return False


def read_manifest(directory: Path) -> Manifest:
    """Reads the manifest of a recording, see `whole_manifest`.

    Raises:
        InputError: it is missing, no JSON, of another format version, or a field is missing or of another kind.
    """
    path, content = directory / MANIFEST, whole_manifest(directory)
    try:
        fields = parse_json(content, where=str(path))
        if not isinstance(fields, dict):
            raise ValueError("no object")
    except ValueError as error:
        way_out = "The recording is damaged: copy it again."
        raise InputError(expected=f"a manifest as JSON in {path}", found=str(error), way_out=way_out) from None
    version = fields.get("format")
    way_out = "Use the version of fedleak that wrote it, or record again."
    right = type(version) is int and version == FORMAT
    require(right, f"a recording of format {FORMAT}", f"format {version!r} in {path}", way_out)
    check_fields({"auxiliary": None, "run": None, **fields}, where=str(path))
    try:
        return Manifest(**fields)
    except TypeError as error:
        raise InputError(
            expected="the fields of a manifest", found=f"{error} in {path}", way_out="Record again with this version."
        ) from None
