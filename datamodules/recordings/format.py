"""The recording's format on disk: names, manifest, journal, and how a file comes to be whole or not at all.

A shard is written under a temporary name, flushed, renamed, then journalled: what the journal names is whole after a
crash at any instant. Every rank has a journal of its own, because appends of several processes to one file are atomic
on some file systems only; the reader merges them.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from datamodules.recordings.manifest_fields import check_fields, is_whole
from datamodules.recordings.plain_files import parse_json, read_bounded
from protocol.errors import InputError

FORMAT = 1
MANIFEST = "manifest.json"
AUXILIARY = "auxiliary.safetensors"
"""What the server holds beside what clients send; it is the same for every round, and no client's."""
LOCK = ".lock"
"""Empty file that the process which writes to the folder has locked."""
_UNFINISHED = re.compile(
    r"\.(?:manifest\.json|auxiliary\.safetensors|journal(?:-\d{4})?\.jsonl|\d{6,}-\d{4,}\.safetensors|cell\.json)\.\d+\.tmp"
)
"""What `write_whole` leaves where it was killed."""
CLIENT = "client/"
"""Begins the names of what is true of a client itself; other names in truth/ speak of its served items."""
PRIOR = "prior/"
"""Begins the names of what the server is assumed to know of each client beforehand; see `ServerView.priors`."""
ROUND_SETTINGS = "round_settings"
"""Key of a manifest's `config`: by round, columns that scores of that round get."""
MODEL = "model/"
"""Begins the names of the global model's parameters in rounds/."""
CLIENT_MODEL = "client_model/"
"""Begins the names of parameters in rounds/ of which each client was sent its own."""
ITEM_FEATURES = "item_features"
"""Features of the items that ``served`` numbers, in rounds/, where all clients of a shard share them."""
_LONGEST_JOURNAL = 2**30
"""Bytes; a line has some 150."""
_SHARD = re.compile(r"(rounds|truth)/\d{6,15}-\d{4,6}\.safetensors")


@dataclass(frozen=True)
class Manifest:
    """What holds for the whole recording.

    Attributes:
        parameters: recorded public parameters: ``{"shape": [...], "dtype": "float32"}`` by name.
        row_parameters: those of which only the served rows are stored.
        learner: the clients' public algorithm by name, None where unknown.
        releases: what clients publicly do to their deltas before sending.
        seed: the run's seed, None in a foreign recording.
        data: name and hash of the data.
        config: the run's configuration.
        versions: versions of packages.
        commit: the commit of the code, None outside a checkout.
        auxiliary: hash of what the server holds beside the updates, None where it holds nothing.
        run: random name of the training, the same when it is resumed; None in a foreign recording.
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

    def same_run(self, other: "Manifest") -> bool:
        """Whether shards of both may lie in one recording."""
        ours, theirs = (json.loads(json.dumps(dataclasses.asdict(m))) for m in (self, other))
        same = ("parameters", "row_parameters", "learner", "releases", "seed", "data", "auxiliary", "run")
        return all(ours[key] == theirs[key] for key in same)


@dataclass(frozen=True)
class JournalLine:
    """One finished file.

    Attributes:
        file: its path inside the recording.
        bytes: its size.
        sha256: its hash.
    """

    file: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        """Refuses what names no shard."""
        if not isinstance(self.file, str) or not _SHARD.fullmatch(self.file):
            raise ValueError(f"the file {str(self.file)[:100]!r}")
        if not is_whole(self.bytes, 0, 2**62) or not isinstance(self.sha256, str):
            raise ValueError(f"bytes or sha256 of another kind for {self.file}")

    @property
    def round(self) -> int:
        """The round that the file's name gives."""
        return int(Path(self.file).name.split("-")[0])


@dataclass(frozen=True)
class Journal:
    """What a journal says.

    Attributes:
        lines: the finished files; a later line of a file replaces an earlier one.
        closed: whether its writer came to its end, and so that no line is missing.
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
    """The journals of a recording, in the order of ranks; files of other people with such names are none."""
    return sorted(p for p in directory.glob("journal*.jsonl") if re.fullmatch(r"journal(-[0-9]{4})?\.jsonl", p.name))


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that is there whole or not at all; what a failed write left is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _flush_folder(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _flush_folder(folder: Path) -> None:
    """Makes the names in a folder outlast a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def only_writer(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Holds a folder for one process that writes; a process that dies lets go of it.

    What killed writers left half-written under a temporary name is removed.

    Args:
        folder: made where it does not exist.
        wait: until another process that holds it has ended.

    Raises:
        InputError: another process holds it, and this one does not wait.
        OSError: it cannot be made or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                expected="a folder that no other process writes to",
                found=f"one that does in {folder}",
                way_out="Wait until it has ended, or give another folder.",
            ) from None
        for left in (*folder.glob(".*.tmp"), *folder.glob("rounds/.*.tmp"), *folder.glob("truth/.*.tmp")):
            if _UNFINISHED.fullmatch(left.name):
                left.unlink(missing_ok=True)
        yield


def shard_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a shard; the tensors may change afterwards."""
    content: bytes = save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
    return content


def write_shard(directory: Path, name: str, content: bytes) -> JournalLine:
    """Writes a shard as one file and says what to journal."""
    write_whole(directory / name, content)
    return JournalLine(name, len(content), hashlib.sha256(content).hexdigest())


def append_journal(directory: Path, rank: int, lines: list[JournalLine]) -> None:
    """Names finished files in the journal."""
    with (directory / journal_name(rank)).open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


def close_journal(directory: Path, rank: int) -> None:
    """Says at the end of a journal how many files of rounds it names; without it, its training did not end."""
    path = directory / journal_name(rank)
    journal = read_journal(path) if path.exists() else Journal([])
    if journal.closed:
        return
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"closed": sum(line.file.startswith("rounds/") for line in journal.lines)}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def rewrite_journal(path: Path, lines: list[JournalLine]) -> None:
    """Replaces a journal by an open one."""
    content = "".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in lines)
    write_whole(path, content.encode())


def read_journal(path: Path) -> Journal:
    """Reads a journal; a last line torn by a crash is left out, and a later line of a file replaces an earlier one.

    Raises:
        InputError: a line in the middle is broken, names a file outside the recording, or a line is missing.
    """
    text = read_bounded(path, most=_LONGEST_JOURNAL).decode(errors="replace")
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
    """A finished file, or of a closing line the number of files of rounds."""
    content = parse_json(line, where="a line")
    if set(content) == {"closed"}:
        if type(content["closed"]) is not int:
            raise ValueError("no number of files")
        return content["closed"]
    return JournalLine(**content)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Writes the manifest."""
    write_whole(directory / MANIFEST, json.dumps(dataclasses.asdict(manifest), indent=2).encode())


def read_manifest(directory: Path) -> Manifest:
    """Reads the manifest.

    Raises:
        InputError: it is missing, no JSON, of another format version, or a field is missing or of another kind.
    """
    path = directory / MANIFEST
    if not path.exists():
        raise InputError(
            expected=f"a recording with a {MANIFEST}",
            found=f"none in {directory}",
            way_out="Give the folder that the recorder wrote, e.g. runs/NAME/deltas.",
        )
    content = read_bounded(path, way_out="Give the folder that the recorder wrote, e.g. runs/NAME/deltas.")
    try:
        fields = parse_json(content, where=str(path))
        if not isinstance(fields, dict):
            raise ValueError("no object")
    except ValueError as error:
        raise InputError(
            expected=f"a manifest as JSON in {path}",
            found=str(error),
            way_out="The recording is damaged: fetch it again.",
        ) from None
    version = fields.get("format")
    if type(version) is not int or version != FORMAT:
        raise InputError(
            expected=f"a recording of format {FORMAT}",
            found=f"format {version!r} in {path}",
            way_out="Use the version of fedleak that wrote it, or record again.",
        )
    check_fields({"auxiliary": None, "run": None, **fields}, where=str(path))
    try:
        return Manifest(**fields)
    except TypeError as error:
        raise InputError(
            expected="the fields of a manifest", found=f"{error} in {path}", way_out="Record again with this version."
        ) from None


def dtype_of(name: str) -> torch.dtype:
    """The floating-point type of a name in a manifest."""
    return {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}[
        name
    ]
