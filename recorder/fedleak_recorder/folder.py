"""Folder of a recording while it is written: the only code that writes shards, journals and manifests.

fedleak's own trainings and the recordings of other systems are both written here, so both survive a crash at any time.
"""

import contextlib
import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedleak_recorder.errors import InputError
from fedleak_recorder.files import Content, openness, write_whole
from fedleak_recorder.format import AUXILIARY, MANIFEST, Manifest, only_writer, read_manifest
from fedleak_recorder.journal import (
    Journal,
    JournalLine,
    append_journal,
    close_journal,
    journal_name,
    journals_in,
    json_lines,
    read_journal,
    write_shard,
)

_logger = logging.getLogger("fedleak_recorder")


class RecordingFolder:
    """Folder of a recording that one process, or one rank of a training, writes to.

    Args:
        directory: the folder.
        rank: number of the writing process of the training.
    """

    def __init__(self, directory: str | Path, rank: int = 0) -> None:
        self.directory = Path(directory)
        self.rank = rank
        self._lock = contextlib.ExitStack()
        self._journal: tuple[set[str], bool] | None = None
        """Names of the journalled shards, and whether it is closed; read once, so that every round costs the same."""

    def lock(self) -> None:
        """Refuses other writers until `release`, or until the process ends; warns if other accounts may look in."""
        self._lock.enter_context(only_writer(self.directory))
        if open_to_others := openness(self.directory):
            _logger.warning("%s", open_to_others)

    def release(self) -> None:
        """Lets other processes write to the folder."""
        self._lock.close()

    def start(self) -> None:
        """Starts anew what an earlier writer left without a manifest; other files in the folder are not changed.

        Raises:
            InputError: the folder holds a recording or files that would be lost.
        """
        journals = journals_in(self.directory)
        for journal in journals:
            try:
                read_journal(journal)
            except InputError:
                raise self._taken(journal.name) from None
        # Auxiliary data without a journal may be another recording's, of which nothing else is left.
        if (self.directory / AUXILIARY).exists() and not journals:
            raise self._taken(AUXILIARY)
        for journal in journals:
            journal.unlink()
        self._journal = None

    def check_free(self) -> None:
        """Checks that the folder holds no recording."""
        if (self.directory / MANIFEST).exists():
            raise self._taken(MANIFEST)

    def resume(self, manifest: Manifest, next_round: int, *, ranks: int = 1, way_out: str) -> None:
        """Keeps the rounds before `next_round` of an interrupted recording.

        Args:
            manifest: manifest of the training that goes on.
            next_round: first round that is written again.
            ranks: number of processes that go on.
            way_out: what to do if the folder is another training's.
        """
        journals = {path: read_journal(path).lines for path in journals_in(self.directory)}
        rounds: set[int] = set()
        for lines in journals.values():
            rounds |= {line.round for line in lines}
        recorded = len(rounds)
        if recorded and not self._is_recording_of(manifest):
            raise InputError(
                expected="an empty folder, or the recording of this same training",
                found=f"another training's recording of {recorded} rounds in {self.directory}",
                way_out=way_out,
            )
        earlier_lines = {}
        for path, lines in journals.items():
            earlier_lines[path] = [line for line in lines if line.round < next_round]
        # Shards of later rounds stay until they are written again; without a line they are no part of the recording.
        for journal, lines in earlier_lines.items():
            write_whole(journal, json_lines(lines).encode())
        for rank in range(ranks, len(journals)):
            path = self.directory / journal_name(rank)
            if path in earlier_lines:
                # No process writes to it any more.
                rounds_kept = _shards(earlier_lines[path])
                close_journal(self.directory, rank, len(rounds_kept))
        self._journal = None

    def declare(self, manifest: Manifest, auxiliary: bytes | None) -> None:
        """Writes the auxiliary data and the manifest, with which the folder becomes a recording."""
        if auxiliary is not None:
            write_whole(self.directory / AUXILIARY, auxiliary)
        write_whole(self.directory / MANIFEST, json.dumps(dataclasses.asdict(manifest), indent=2).encode())

    def write(self, shards: Mapping[str, Content]) -> None:
        """Writes shards by name, and then their lines in the journal.

        Raises:
            OSError: e.g. the disk is full; the folder is as it was before.
        """
        try:
            lines = [write_shard(self.directory, name, content) for name, content in shards.items()]
            self.add(lines)
        except OSError:
            self.discard(shards)
            raise

    def add(self, lines: list[JournalLine]) -> None:
        """Adds the lines of written shards to the journal, with which they belong to the recording."""
        before, _ = self._journalled()
        append_journal(self.directory, self.rank, lines)
        before.update(_shards(lines))
        self._journal = before, False

    def discard(self, names: Iterable[str]) -> None:
        """Removes shards that were written and are not in the journal."""
        for name in names:
            if not self.holds(name):
                (self.directory / name).unlink(missing_ok=True)

    def holds(self, name: str) -> bool:
        """Whether the journal names a shard."""
        return Path(name).name in self._journalled()[0]

    def close(self) -> None:
        """Notes in the journal that no round is missing; further rounds may follow, and then another call."""
        shards, closed = self._journalled()
        if not closed:
            close_journal(self.directory, self.rank, len(shards))
        self._journal = shards, True

    def _is_recording_of(self, manifest: Manifest) -> bool:
        """Whether the folder's own manifest is of the same training."""
        if not (self.directory / MANIFEST).exists():
            return False
        return read_manifest(self.directory).same_run(manifest)

    def _journalled(self) -> tuple[set[str], bool]:
        """Names of the journalled shards, and whether the journal is closed."""
        if self._journal is None:
            path = self.directory / journal_name(self.rank)
            journal = read_journal(path) if path.exists() else Journal([])
            self._journal = _shards(journal.lines), journal.closed
        return self._journal

    def _taken(self, name: str) -> InputError:
        return InputError(
            expected="a folder without a recording",
            found=f"{name} in {self.directory}, which would be lost",
            way_out="Give another folder, or delete that one.",
        )


def _shards(lines: Iterable[JournalLine]) -> set[str]:
    """Names of shards, without their folder."""
    return {Path(line.file).name for line in lines if line.file.startswith("rounds/")}
