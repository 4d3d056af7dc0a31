"""Format of recordings on disk: names of files and tensors, and the manifest.

A shard is written under a temporary name, flushed, renamed, then journalled (`fedleak_recorder.journal`), so that all
files in the journal are complete after a crash at any time.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedleak_recorder.errors import InputError, require
from fedleak_recorder.files import (
    MOST_TEXT,
    check_stays_inside,
    make_folder,
    open_private,
    read_bounded,
)
from fedleak_recorder.manifest_fields import check_fields
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
_MOST_SUGGESTED = 5
"""Recordings that an error names at most."""


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
        dtypes = {parameter["dtype"] for parameter in self.parameters.values()}
        return dtypes == {"float64"}

    def same_run(self, other: "Manifest") -> bool:
        """Whether shards of both may be in one recording."""
        # By way of JSON, in which one of the two was read: a tuple that was not written yet equals its list.
        ours = json.loads(json.dumps(dataclasses.asdict(self)))
        theirs = json.loads(json.dumps(dataclasses.asdict(other)))
        # The configuration, the versions and the commit may change when a training goes on.
        same = ("parameters", "row_parameters", "learner", "releases", "seed", "data", "auxiliary", "run")
        return all(ours[key] == theirs[key] for key in same)


def shard_name(kind: str, round_number: int, rank: int) -> str:
    """Path of a shard inside the recording; `kind` is ``rounds`` or ``truth``."""
    return f"{kind}/{round_number:06d}-{rank:04d}.safetensors"


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
    operation = fcntl.LOCK_EX
    if not wait:
        operation |= fcntl.LOCK_NB
    with open(folder / LOCK, "a", opener=open_private) as lock:
        try:
            fcntl.flock(lock, operation)
        except BlockingIOError:
            raise InputError(
                expected="a folder that no other process writes to",
                found=f"one that writes to {folder}",
                way_out="Wait until it has ended, or give another folder.",
            ) from None
        # Nobody else writes to the folder now, so that every temporary file was left by a process that is gone.
        for pattern in (".*.tmp", "rounds/.*.tmp", "truth/.*.tmp"):
            for temporary in folder.glob(pattern):
                if _UNFINISHED.fullmatch(temporary.name):
                    temporary.unlink(missing_ok=True)
        yield


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
    content = b""
    if path.exists():
        content = read_bounded(path, way_out=way_out)
    if follows and not _is_object(content):
        # The writer of a copy was killed while it wrote the manifest; the next one was written, whole, before.
        next_manifest = unsealed(read_bounded(directory / NEXT_MANIFEST, most=MOST_TEXT + SEAL))
        if next_manifest is not None:
            content = next_manifest
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
    path = directory / MANIFEST
    content = whole_manifest(directory)
    try:
        fields = parse_json(content, where=str(path))
        if not isinstance(fields, dict):
            raise ValueError("no object")
    except ValueError as error:
        way_out = "The recording is damaged: copy it again."
        raise InputError(expected=f"a manifest as JSON in {path}", found=str(error), way_out=way_out) from None
    version = fields.get("format")
    way_out = "Use the version of fedleak that wrote it, or record again."
    is_readable = type(version) is int and version == FORMAT
    require(is_readable, f"a recording of format {FORMAT}", f"format {version!r} in {path}", way_out)
    # Recordings of earlier versions lack these two.
    check_fields({"auxiliary": None, "run": None, **fields}, where=str(path))
    try:
        return Manifest(**fields)
    except TypeError as error:
        raise InputError(
            expected="the fields of a manifest", found=f"{error} in {path}", way_out="Record again with this version."
        ) from None
