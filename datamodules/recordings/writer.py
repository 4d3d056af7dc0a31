"""Writer of recordings of other systems, round by round from plain arrays: the core of every adapter.

It knows no framework: `callbacks.flower_recorder` and `datamodules.recordings.array_dump` provide the arrays.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

from torch import Tensor

from datamodules.io.files import write_whole
from datamodules.recordings.external_round import Round, Sent
from datamodules.recordings.external_system import System, manifest_of
from datamodules.recordings.format import (
    AUXILIARY,
    MANIFEST,
    MODEL,
    append_journal,
    close_journal,
    journals_in,
    only_writer,
    read_journal,
    shard_bytes,
    shard_name,
    write_manifest,
    write_shard,
)
from datamodules.recordings.shape_check import check_arrays
from datamodules.recordings.shard_check import InMemory, MisfitError, check_auxiliary, check_seen, check_truth
from protocol.errors import InputError


class RecordingWriter:
    """A recording that grows by one round at a time; memory holds one round.

    A folder that an earlier writer left unfinished is started again; no other files in a folder are changed.

    Args:
        directory: folder of the recording.
        system: description of the system.

    Raises:
        InputError: the folder holds a recording or files that would be lost, or the description contradicts itself.
    """

    def __init__(self, directory: str | Path, system: System) -> None:
        self.directory = Path(directory)
        self.system = system
        self._lock = contextlib.ExitStack()
        if (self.directory / MANIFEST).exists():
            raise self._taken(MANIFEST)
        self._auxiliary = shard_bytes(system.auxiliary) if system.auxiliary else None
        self._manifest = manifest_of(system, self._auxiliary)
        with _misfits("auxiliary data that fit together"):
            check_auxiliary(system.auxiliary)
        self._lock.enter_context(only_writer(self.directory))
        self._clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def declare(self) -> None:
        """Writes the manifest: before the first round to keep what a crash leaves, or after the last."""
        if self._auxiliary is not None:
            write_whole(self.directory / AUXILIARY, self._auxiliary)
        write_manifest(self.directory, self._manifest)

    def write(self, number: int, model: Mapping[str, Tensor], sent: Iterable[Sent], clients: int) -> None:
        """Writes a round.

        Args:
            number: number of the round in that system.
            model: the global model before the round, in the model's order; empty if it is unknown.
            sent: what the clients sent, read one after the other.
            clients: largest number of clients.

        Raises:
            InputError: something is of another model, not finite, there twice, or does not fit the rest of the round.
        """
        if model or self.system.holds == "models":
            check_arrays(self.system.parameters, model, where=f"the global model before round {number}")
        if not clients:
            return
        gathered = Round(self.system, number, model, clients)
        for one in sent:
            gathered.add(one)
        seen, truth = gathered.shards()
        seen |= {f"{MODEL}{name}": value.float() for name, value in model.items()}
        with _misfits(f"a round {number} whose arrays and truth fit together"):
            check_seen(InMemory(seen), self._manifest)
            check_truth(InMemory(truth), InMemory(seen))
        lines = [
            write_shard(self.directory, shard_name(kind, number, 0), shard_bytes(tensors))
            for kind, tensors in (("truth", truth), ("rounds", seen))
        ]
        append_journal(self.directory, 0, lines)

    def close(self) -> None:
        """Notes in the journal that no round is missing; further rounds may follow, and then another call."""
        close_journal(self.directory, 0)

    def _clear(self) -> None:
        """Removes the journals of a recording without a manifest."""
        left = journals_in(self.directory)
        for journal in left:
            try:
                read_journal(journal)
            except InputError:
                raise self._taken(journal.name) from None
        if (self.directory / AUXILIARY).exists() and not left:
            raise self._taken(AUXILIARY)
        for journal in left:
            journal.unlink()

    def _taken(self, name: str) -> InputError:
        return InputError(
            expected="a folder without a recording",
            found=f"{name} in {self.directory}, which would be lost",
            way_out="Give another folder, or delete that one.",
        )


@contextlib.contextmanager
def _misfits(expected: str) -> Iterator[None]:
    try:
        yield
    except MisfitError as error:
        raise InputError(expected=expected, found=str(error), way_out="Correct what was written.") from None
