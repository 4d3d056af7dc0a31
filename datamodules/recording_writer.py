"""Writes what the server of another system saw, round by round, from plain arrays: the core of every adapter.

Nothing here knows a framework: `callbacks.flower_recorder` and `datamodules.dump` bring the arrays.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from datamodules.foreign_round import Round, Sent
from datamodules.foreign_system import System, manifest_of
from datamodules.parameter_check import check_arrays
from datamodules.recording_format import (
    AUXILIARY,
    MANIFEST,
    append_journal,
    close_journal,
    journals_in,
    shard_bytes,
    shard_name,
    write_manifest,
    write_shard,
    write_whole,
)
from errors import InputError


class RecordingWriter:
    """A recording that grows by one round at a time; memory holds one round.

    Args:
        directory: where to.
        system: what holds for all rounds.

    Raises:
        InputError: the folder holds a recording, or the description contradicts itself.
    """

    def __init__(self, directory: str | Path, system: System) -> None:
        self.directory = Path(directory)
        self.system = system
        if (self.directory / MANIFEST).exists():
            raise InputError(
                expected="a folder without a recording",
                found=f"one in {self.directory}",
                way_out="Give another folder, or delete that one.",
            )
        for journal in journals_in(self.directory):
            journal.unlink()  # of a recording that was never declared
        self._auxiliary = shard_bytes(system.auxiliary) if system.auxiliary else None
        self._manifest = manifest_of(system, self._auxiliary)

    def declare(self) -> None:
        """Makes the folder a recording; before the first round to keep what a crash leaves, or after the last."""
        if self._auxiliary is not None:
            write_whole(self.directory / AUXILIARY, self._auxiliary)
        write_manifest(self.directory, self._manifest)

    def write(self, number: int, model: Mapping[str, Tensor], sent: Iterable[Sent], clients: int) -> None:
        """Writes a round.

        Args:
            number: the round's own number in that system.
            model: the global model before the round, in the model's order; empty where it is unknown.
            sent: what the clients sent, read one after the other.
            clients: most clients that there are.

        Raises:
            InputError: something is of another model, no number, or there twice.
        """
        if model or self.system.holds == "models":
            check_arrays(self.system.parameters, model, where=f"the global model before round {number}")
        if not clients:
            return
        gathered = Round(self.system, number, model, clients)
        for one in sent:
            gathered.add(one)
        seen, truth = gathered.shards()
        seen |= {f"model/{name}": value.float() for name, value in model.items()}
        lines = [
            write_shard(self.directory, shard_name(kind, number, 0), shard_bytes(tensors))
            for kind, tensors in (("truth", truth), ("rounds", seen))
        ]
        append_journal(self.directory, 0, lines)

    def close(self) -> None:
        """Says in the journal that no round is missing; rounds may follow, and are then closed anew."""
        close_journal(self.directory, 0)
