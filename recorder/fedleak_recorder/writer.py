"""Writer of recordings of other systems, round by round from plain arrays: the core of `Recorder` and every adapter."""

import contextlib
import errno
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from fedleak_recorder.arrays import HALF, Array, as_array, numpy_type, shard_bytes, shard_parts
from fedleak_recorder.auxiliary_check import check_auxiliary
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.folder import RecordingFolder
from fedleak_recorder.format import MODEL, shard_name
from fedleak_recorder.gathered_round import Group, stored
from fedleak_recorder.in_memory_shard import InMemoryShard
from fedleak_recorder.journal import JournalLine, write_shard
from fedleak_recorder.pseudonyms import run_name
from fedleak_recorder.sent import Sent
from fedleak_recorder.shape_check import check_arrays
from fedleak_recorder.shard_check import check_seen, check_truth, is_forest
from fedleak_recorder.system import System, manifest_of
from fedleak_recorder.tensor_checks import MisfitError

GROUP_BYTES = 2**26
"""Bytes of updates that are in memory, and in one file, at a time; one client's where that is larger."""


class RecordingWriter:
    """A recording that grows by one round at a time; memory holds a part of one, see `RoundStream`.

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
        self.system = system
        self.key = key
        self._resume_at = resume_at
        self._growing = growing
        self._begun = False
        self.folder = RecordingFolder(directory)
        if resume_at is None:
            with on_disk(f"into {directory}"):
                self.folder.check_free()
        auxiliary = {}
        for name, value in system.auxiliary.items():
            auxiliary[name] = as_array(value, where=f"{name!r} of the auxiliary data")
        self._auxiliary = shard_bytes(auxiliary) if auxiliary else None
        self.manifest = manifest_of(system, self._auxiliary, run_name(key))
        with _misfits("auxiliary data that fit together"):
            check_auxiliary(auxiliary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Lets other processes write to the folder."""
        self.folder.release()

    def declare(self) -> None:
        """Writes the manifest, with which the folder becomes a recording."""
        with on_disk(f"the manifest into {self.directory}"):
            self.begin()
            self.folder.declare(self.manifest, self._auxiliary)

    def begin(self) -> None:
        """Locks the folder, and clears it for a new recording or keeps the rounds of the resumed one."""
        if self._begun:
            return
        self.folder.lock()
        if self._resume_at is None:
            self.folder.start()
        else:
            way_out = "Give the description and the key of the training that is resumed, or another folder."
            self.folder.resume(self.manifest, self._resume_at, way_out=way_out)
        if self._growing:
            self.folder.declare(self.manifest, self._auxiliary)
        self._begun = True

    def write(self, number: int, model: Mapping[str, Any], sent: Iterable[Sent], clients: int) -> None:
        """Writes a `Recorder.round` of so many clients at most, whose messages are read one after the other."""
        with self.streamed(number, model, clients) as stream:
            for message in sent:
                stream.add(message)

    @contextlib.contextmanager
    def streamed(self, number: int, model: Mapping[str, Any], clients: int | None = None) -> Iterator["RoundStream"]:
        """A round whose messages are added one after the other; after an exception nothing of it is recorded.

        Args:
            number: number of the round.
            model: the global model before it.
            clients: largest number of clients, if it is known.
        """
        before = {}
        for name, value in model.items():
            before[name] = as_array(value, where=f"{name!r} of the global model")
        # Clients that send deltas need no global model; without it, models have nothing to be subtracted from.
        if before or self.system.holds == "models":
            expected = dict(self.system.parameters)
            for name, value in before.items():
                # A forest has room for more trees than a client sends in a round.
                if is_forest(self.manifest, name) and value.ndim and expected.get(name):
                    expected[name] = (value.shape[0], *expected[name][1:])
            check_arrays(expected, before, where=f"the global model before round {number}")
        stream = RoundStream(self, number, before, clients)
        try:
            yield stream
            stream.finish()
        except BaseException:
            stream.discard()
            raise

    def close(self) -> None:
        """Notes in the journal that no round is missing; further rounds may follow, and then another call."""
        with on_disk(f"the end of the journal into {self.directory}"):
            self.begin()
            self.folder.close()


class RoundStream:
    """A round that is written in groups of clients, of `GROUP_BYTES` at most, while its messages arrive.

    Memory holds one group. The journal names the files after the last group, so that a crash leaves no half round.
    """

    def __init__(self, writer: RecordingWriter, number: int, model: Mapping[str, Array], clients: int | None) -> None:
        self._writer = writer
        self._number = number
        self._model = model
        system = writer.system
        # One client's bytes of all parameters but tables, of which each client sends another number of rows.
        numbers = 0
        for name, shape in system.parameters.items():
            if name not in system.row_parameters:
                numbers += math.prod(shape)
        client_bytes = numbers * numpy_type(system.dtype).itemsize
        self._size = max(1, GROUP_BYTES // max(client_bytes, 1))
        """Largest number of clients in a group."""
        if clients is not None:
            # No room is made for more clients than can come.
            self._size = max(1, min(self._size, clients))
        self._group = self._next_group(None)
        self._lines: list[JournalLine] = []
        self._written: list[str] = []

    def add(self, sent: Sent) -> None:
        """Adds what one client sent."""
        if len(self._group.names) == self._size or self._group.row_bytes >= GROUP_BYTES:
            self._flush()
            self._group = self._next_group(self._group)
        self._group.add(sent)

    def finish(self) -> None:
        """Writes the last group, and notes all of them in the journal."""
        if self._group.names:
            self._flush()
        if self._lines:
            with on_disk(f"round {self._number} into {self._writer.directory}"):
                self._writer.folder.add(self._lines)

    def discard(self) -> None:
        """Removes what was written of the round."""
        self._writer.folder.discard(self._written)

    def _next_group(self, before: Group | None) -> Group:
        """An empty group that follows another one of the round."""
        return Group(
            self._writer.system,
            self._number,
            self._model,
            clients=self._size,
            key=self._writer.key,
            before=before,
        )

    def _flush(self) -> None:
        """Checks the group and writes its two files, which are no part of the recording before `finish`."""
        number = self._number
        writer = self._writer
        sent_tensors, truth_tensors = self._group.shards()
        # Types of two bytes are for deltas that came in them; models are stored in single precision.
        model_dtype = "float32" if writer.system.dtype in HALF else writer.system.dtype
        for name, value in self._model.items():
            where = f"{name!r} of the global model before round {number}"
            sent_tensors[f"{MODEL}{name}"] = stored(value, model_dtype, where=where)
        with _misfits(f"a round {number} whose arrays and truth fit together"):
            check_seen(InMemoryShard(sent_tensors), writer.manifest)
            check_truth(InMemoryShard(truth_tensors), InMemoryShard(sent_tensors))
        # A group takes the place of a rank in the names of files; each has written a file of truth and one of rounds.
        group_number = len(self._written) // 2
        shards = {
            shard_name("truth", number, group_number): truth_tensors,
            shard_name("rounds", number, group_number): sent_tensors,
        }
        with on_disk(f"round {number} into {writer.directory}"):
            writer.begin()
            require(
                not any(writer.folder.holds(name) for name in shards),
                f"a round that is not recorded in {writer.directory}",
                f"round {number}, which is",
                f"Give each round a number of its own; to record it again, make a recorder with resume_at={number}.",
            )
            # Noted before they are written, so that `discard` removes them if one fails.
            self._written += shards
            for name, tensors in shards.items():
                self._lines.append(write_shard(writer.directory, name, shard_parts(tensors)))


@contextlib.contextmanager
def on_disk(what: str) -> Iterator[None]:
    """Says what could not be written, and what to do then, where the disk is full or a folder cannot be written to."""
    try:
        yield
    except OSError as error:
        reason = str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "a full disk"
        way_out = "What was written before is whole. Free some space and write it again, or end the recording here."
        raise InputError(expected=f"space and permission to write {what}", found=reason, way_out=way_out) from error


@contextlib.contextmanager
def _misfits(expected: str) -> Iterator[None]:
    try:
        yield
    except MisfitError as error:
        raise InputError(expected=expected, found=str(error), way_out="Correct what was written.") from None
