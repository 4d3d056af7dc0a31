"""Files that the journals of a recording name, which must be there in the journalled sizes."""

import logging
from pathlib import Path
from typing import NamedTuple

from fedleak.core.errors import InputError, require
from fedleak_recorder.files import check_stays_inside
from fedleak_recorder.format import Manifest
from fedleak_recorder.journal import JournalLine, journal_name, journals_in, read_journal

_logger = logging.getLogger(__name__)


class JournalledFiles(NamedTuple):
    """Files of a recording.

    Attributes:
        lines: line of the journals by name of the file.
        closed: whether the writers of all ranks have finished.
    """

    lines: dict[str, JournalLine]
    closed: bool


def journalled_files(directory: Path, manifest: Manifest, *, running: bool) -> JournalledFiles:
    """The files of a recording, without those of the truth if it was passed on without them.

    Args:
        directory: the recording.
        manifest: its manifest.
        running: whether the recording may still be written: if it is not closed, nothing is logged.

    Raises:
        InputError: no round is journalled, or a file is missing or has another size.
    """
    journals = [read_journal(path) for path in journals_in(directory)]
    lines: dict[str, JournalLine] = {}
    for journal in journals:
        lines |= {line.file: line for line in journal.lines}
    if not lines:
        raise _without_journal(directory, any_journal=bool(journals))
    # Each rank of a distributed training writes and closes a journal of its own.
    ranks = manifest.config.get("ranks", 1)
    if type(ranks) is not int:
        ranks = 1
    closed = len(journals) >= ranks and all(journal.closed for journal in journals)
    if not closed and not running:
        _logger.warning(
            "%s is not closed: its training is still running, was interrupted or never closed its recorder, or its "
            "journal is cut short; %d rounds are read",
            directory,
            len({line.round for line in lines.values()}),
        )
    rounds = {name.split("/")[1] for name in lines if name.startswith("rounds/")}
    truth = {name.split("/")[1] for name in lines if name.startswith("truth/")}
    require(
        not truth or rounds <= truth,
        "truth of every round, or of none",
        f"none of {min(rounds - truth, default='')} in the journal of {directory}",
        "Copy the recording again, whole; or, to publish it without truth, leave out all of truth/.",
    )
    if truth and not (directory / "truth").exists():
        _logger.info("%s has no folder truth/: it was passed on without ground truth", directory)
        lines = {name: line for name, line in lines.items() if not name.startswith("truth/")}
    for name, line in lines.items():
        _check_size(directory, name, line)
    return JournalledFiles(lines, closed)


def _check_size(directory: Path, name: str, line: JournalLine) -> None:
    check_stays_inside(directory, name)
    path = directory / name
    size = None
    content = "nothing"
    if path.is_file():
        size = path.stat().st_size
        content = f"{size} bytes"
    way_out = "A shard is missing or cut short: copy the recording again, whole."
    if name.startswith("truth/"):
        way_out += " Without the whole folder truth/, an audit describes the updates, and scores nothing."
    require(size == line.bytes, f"{name} of {line.bytes} bytes", f"{content} in {directory}", way_out)


def _without_journal(directory: Path, *, any_journal: bool) -> InputError:
    """The error for a recording of which no round is journalled."""
    rounds = {path.name.partition("-")[0] for path in (directory / "rounds").glob("*.safetensors")}
    way_out = "The training ended before its first round was over: run it again."
    if len(rounds) > 1:
        # A round begins after the one before is journalled.
        files = f"rounds/ holds files of {len(rounds)} rounds"
        way_out = f"The journal is missing, as {files}: copy {journal_name(0)} from where it was recorded."
    elif rounds:
        way_out = f"Copy {journal_name(0)} from where it was recorded. If there is none: {way_out}"
    journal = "an empty one" if any_journal else "none"
    return InputError(
        expected="a journal of finished rounds",
        found=f"{journal} in {directory}",
        way_out=way_out,
    )
