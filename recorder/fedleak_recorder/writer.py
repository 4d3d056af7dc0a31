"""Writer of recordings of other systems, round by round from plain arrays: the core of `Recorder` and every adapter."""

import contextlib
import errno
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from fedleak_recorder.arrays import as_array, shard_bytes
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.folder import RecordingFolder
from fedleak_recorder.format import MODEL, shard_name
from fedleak_recorder.gathered_round import Round, Sent, stored
from fedleak_recorder.pseudonyms import run_name
from fedleak_recorder.shape_check import check_arrays
from fedleak_recorder.shard_check import InMemory, MisfitError, check_auxiliary, check_seen, check_truth
from fedleak_recorder.system import System, manifest_of


class RecordingWriter:
    """A recording that grows by one round at a time; memory holds one round.

    A folder that an earlier writer left unfinished is started again; no other files in a folder are changed.

    Args:
        directory: folder of the recording.
        system: description of the system.
        key: secret key of the pseudonyms, see `pseudonyms.secret_key`.
        resume_at: first round to write again in a recording of the same system and key; None for a new recording.
        growing: whether the manifest is written before the first round, to keep what a crash leaves; otherwise the
            folder becomes a recording with `declare`.

    The folder is locked, and changed at all, by the first round that can be recorded.

    Raises:
        InputError: the folder holds a recording or files that would be lost, or the description contradicts itself.
    """

    def __init__(
        self, directory: str | Path, system: System, *, key: bytes, resume_at: int | None = None, growing: bool = False
    ) -> None:
        self.directory = Path(directory)
        self.system, self._key = system, key
        self._resume_at, self._growing, self._begun = resume_at, growing, False
        self._folder = RecordingFolder(directory)
        if resume_at is None:
            with on_disk(f"into {directory}"):
                self._folder.check_free()
        auxiliary = {
            name: as_array(value, where=f"{name!r} of the auxiliary data") for name, value in system.auxiliary.items()
        }
        self._auxiliary = shard_bytes(auxiliary) if auxiliary else None
        self._manifest = manifest_of(system, self._auxiliary, run_name(key))
        with _misfits("auxiliary data that fit together"):
            check_auxiliary(auxiliary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Lets other processes write to the folder."""
        self._folder.release()

    def declare(self) -> None:
        """Writes the manifest, with which the folder becomes a recording."""
        with on_disk(f"the manifest into {self.directory}"):
            self._begin()
            self._folder.declare(self._manifest, self._auxiliary)

    def _begin(self) -> None:
        """Locks the folder, and clears it for a new recording or keeps the rounds of the resumed one."""
        if self._begun:
            return
        self._folder.lock()
        if self._resume_at is None:
            self._folder.start()
        else:
            way_out = "Give the description and the key of the training that is resumed, or another folder."
            self._folder.resume(self._manifest, self._resume_at, way_out=way_out)
        if self._growing:
            self._folder.declare(self._manifest, self._auxiliary)
        self._begun = True

    def write(self, number: int, model: Mapping[str, Any], sent: Iterable[Sent], clients: int) -> None:
        """Writes a `Recorder.round` of so many clients at most, whose messages are read one after the other."""
        before = {name: as_array(value, where=f"{name!r} of the global model") for name, value in model.items()}
        if before or self.system.holds == "models":
            check_arrays(self.system.parameters, before, where=f"the global model before round {number}")
        if not clients:
            return
        gathered = Round(self.system, number, before, clients, self._key)
        for one in sent:
            gathered.add(one)
        seen, truth = gathered.shards()
        for name, value in before.items():
            where = f"{name!r} of the global model before round {number}"
            seen[f"{MODEL}{name}"] = stored(value, self.system.dtype, where=where)
        with _misfits(f"a round {number} whose arrays and truth fit together"):
            check_seen(InMemory(seen), self._manifest)
            check_truth(InMemory(truth), InMemory(seen))
        shards = {shard_name(kind, number, 0): shard_bytes(held) for kind, held in (("truth", truth), ("rounds", seen))}
        with on_disk(f"round {number} into {self.directory}"):
            self._begin()
            require(
                not self._folder.holds(shard_name("rounds", number, 0)),
                f"a round that is not recorded in {self.directory}",
                f"round {number}, which is",
                f"Give each round a number of its own; to record it again, make a recorder with resume_at={number}.",
            )
            self._folder.write(shards)

    def close(self) -> None:
        """Notes in the journal that no round is missing; further rounds may follow, and then another call."""
        with on_disk(f"the end of the journal into {self.directory}"):
            self._begin()
            self._folder.close()


@contextlib.contextmanager
def on_disk(what: str) -> Iterator[None]:
    """Says what could not be written, and what to do then, where the disk is full or a folder cannot be written to."""
    try:
        yield
    except OSError as error:
        reason = "a full disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)
        way_out = "What was written before is whole. Free some space and write it again, or end the recording here."
        raise InputError(expected=f"space and permission to write {what}", found=reason, way_out=way_out) from error


@contextlib.contextmanager
def _misfits(expected: str) -> Iterator[None]:
    try:
        yield
    except MisfitError as error:
        raise InputError(expected=expected, found=str(error), way_out="Correct what was written.") from None
