"""Rounds of a recording that its writer has finished, while the training runs."""

import hashlib
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from fedleak_recorder.format import MANIFEST
from fedleak_recorder.journal import Journal, journals_in, read_journal

_SETTLED = 0.05
"""Seconds without a change after which a journal holds all lines of its newest round, which one call writes."""


@dataclass(frozen=True)
class CompleteRounds:
    """What the journals of a recording name.

    Attributes:
        rounds: by number, the hash of the files of the round, of its ground truth too; ascending.
        closed: whether the writer has noted that no round is missing.
    """

    rounds: dict[int, str] = field(default_factory=dict)
    closed: bool = False


def complete_rounds(folder: Path) -> CompleteRounds:
    """The complete rounds of a recording that another process writes; none before its manifest is there.

    A round of several ranks counts once every journal names it. The call takes a twentieth of a second at least, and
    longer while a journal changes.

    Raises:
        InputError: a journal is damaged.
    """
    if not (folder / MANIFEST).exists():
        return CompleteRounds()
    # The journals are read once no writer has touched them for a moment before and while they are read.
    while True:
        before = _sizes(folder)
        time.sleep(_SETTLED)
        journals = [read_journal(path) for path in journals_in(folder)]
        if _sizes(folder) == before:
            break
    # A round is complete when the journal of every rank has it.
    rounds_of_ranks = []
    for journal in journals:
        rounds_of_ranks.append({line.round for line in journal.lines if line.file.startswith("rounds/")})
    complete = set.intersection(*rounds_of_ranks) if rounds_of_ranks else set()
    hashes = _hashes(journals)
    closed = bool(journals) and all(journal.closed for journal in journals)
    return CompleteRounds({number: hashes[number] for number in sorted(complete)}, closed)


def _sizes(folder: Path) -> dict[str, tuple[int, int]]:
    sizes = {}
    for path in journals_in(folder):
        status = path.stat()
        sizes[path.name] = (status.st_size, status.st_mtime_ns)
    return sizes


def _hashes(journals: list[Journal]) -> dict[int, str]:
    files_of_round: dict[int, list[str]] = defaultdict(list)
    for journal in journals:
        for line in journal.lines:
            files_of_round[line.round].append(f"{line.file} {line.sha256}")
    # Sorted, because the order of the ranks says nothing.
    hashes = {}
    for number, files in files_of_round.items():
        hashes[number] = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()
    return hashes
