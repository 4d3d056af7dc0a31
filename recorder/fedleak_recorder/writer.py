"""Writer of recordings of other systems, round by round from plain arrays: the core of `Recorder` and every adapter."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedleak_recorder.arrays import as_array, shard_bytes
from fedleak_recorder.errors import InputError
from fedleak_recorder.folder import RecordingFolder
from fedleak_recorder.format import MODEL, shard_name
from fedleak_recorder.gathered_round import Round, Sent
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

    Raises:
        InputError: the folder holds a recording or files that would be lost, or the description contradicts itself.
    """

    def __init__(self, directory: str | Path, system: System, *, key: bytes, resume_at: int | None = None) -> None:
        self.directory = Path(directory)
        self.system, self._key = system, key
        self._folder = RecordingFolder(directory)
        if resume_at is None:
            self._folder.check_free()
        auxiliary = {name: as_array(value) for name, value in system.auxiliary.items()}
        self._auxiliary = shard_bytes(auxiliary) if auxiliary else None
        self._manifest = manifest_of(system, self._auxiliary, run_name(key))
        with _misfits("auxiliary data that fit together"):
            check_auxiliary(auxiliary)
        self._folder.lock()
        if resume_at is None:
            self._folder.start()
        else:
            way_out = "Give the description and the key of the training that is resumed, or another folder."
            self._folder.resume(self._manifest, resume_at, way_out=way_out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Lets other processes write to the folder."""
        self._folder.release()

    def declare(self) -> None:
        """Writes the manifest: before the first round to keep what a crash leaves, or after the last."""
        self._folder.declare(self._manifest, self._auxiliary)

    def write(self, number: int, model: Mapping[str, Any], sent: Iterable[Sent], clients: int) -> None:
        """Writes a round.

        Args:
            number: number of the round in that system.
            model: the global model before the round, in the model's order; empty if it is unknown.
            sent: what the clients sent, read one after the other, in an order that does not reveal their names.
            clients: largest number of clients.

        Raises:
            InputError: something is of another model, not finite, there twice, or does not fit the rest of the round.
        """
        before = {name: as_array(value) for name, value in model.items()}
        if before or self.system.holds == "models":
            check_arrays(self.system.parameters, before, where=f"the global model before round {number}")
        if not clients:
            return
        gathered = Round(self.system, number, before, clients, self._key)
        for one in sent:
            gathered.add(one)
        seen, truth = gathered.shards()
        seen |= {f"{MODEL}{name}": value.astype(np.dtype(self.system.dtype)) for name, value in before.items()}
        with _misfits(f"a round {number} whose arrays and truth fit together"):
            check_seen(InMemory(seen), self._manifest)
            check_truth(InMemory(truth), InMemory(seen))
        shards = {shard_name(kind, number, 0): shard_bytes(held) for kind, held in (("truth", truth), ("rounds", seen))}
        self._folder.write(shards)

    def close(self) -> None:
        """Notes in the journal that no round is missing; further rounds may follow, and then another call."""
        self._folder.close()


@contextlib.contextmanager
def _misfits(expected: str) -> Iterator[None]:
    try:
        yield
    except MisfitError as error:
        raise InputError(expected=expected, found=str(error), way_out="Correct what was written.") from None
