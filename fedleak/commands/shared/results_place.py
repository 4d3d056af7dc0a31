"""Where a command may write its results: not into a recording or among other files, and one command at a time."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedleak.core.errors import InputError, require
from fedleak_recorder.files import open_private
from fedleak_recorder.format import AUXILIARY, MANIFEST
from fedleak_recorder.journal import journals_in

LOCK = ".audit.lock"
"""Empty file in the folder of the results, while a command writes there."""
_MARKS_OF_RESULTS = (
    "evaluation.json",
    "unfinished/stamp.json",
    "watch.json",
    "demo.json",
    "cells",
    "gate.xml",
    "engine/.lock",
    LOCK,
)
"""Files and folders that only fedleak's commands write into a folder of results."""
_KEYS_OF_RESULTS = {"experiment", "command", "results"}
"""Keys of each results.json that fedleak has written."""
_PARTS = ("rounds", "truth")
"""Folders of a recording."""
_WAY_OUT = "Give a new or empty folder, or that of earlier results, with --out."


def check_results_place(
    out: str | Path,
    *,
    recordings: Sequence[str | Path] = (),
    inputs: Sequence[str | Path | None] = (),
    holds_files: bool = True,
) -> None:
    """Checks that results, or a new recording, may be written into a folder.

    Args:
        out: the folder, which need not exist.
        recordings: recordings that the command reads.
        inputs: files that the command reads, such as a system.yaml, which may lie in the folder; None for none.
        holds_files: whether what the folder holds is checked, which `folder_above` of a recording need not pass.

    Raises:
        InputError: the folder is a recording, or inside one; it contains one that is not directly below it; or it holds
            a person's files and no results.
    """
    folder = Path(out).resolve()
    # 1. Not a recording, nor inside one.
    for path in (folder, *folder.parents):
        inside = f"{out}" if path == folder else f"{out}, inside {path}"
        require(not is_recording(path), "a folder for results outside of every recording", inside, _WAY_OUT)
    # 2. Not above the recordings that are read, but for the folder that holds one directly.
    for recording in map(Path, recordings):
        contains = recording.resolve().is_relative_to(folder) and recording.resolve().parent != folder
        contained = f"{out}, which contains the recording {recording}"
        require(not contains, "a folder for results, or the one directly above the recording", contained, _WAY_OUT)
    # 3. Earlier results may be replaced, a file of the same name by somebody else may not.
    if (folder / "results.json").exists():
        foreign = f"a results.json of something else in {out}, which would be lost"
        require(_by_fedleak(folder / "results.json"), "a folder for results", foreign, _WAY_OUT)
        return
    # 4. No folder of a person's files, unless there are marks of an earlier command or a recording among them.
    if holds_files and folder.is_dir():
        require(folder != folder.parent, "a folder for results", f"{out}, the root of all folders", _WAY_OUT)
        input_files = {Path(path).resolve() for path in inputs if path is not None}
        names = sorted(
            path.name
            for path in folder.iterdir()
            if not path.name.startswith(".") and path.resolve() not in input_files
        )
        has_marks = any((folder / name).exists() for name in _MARKS_OF_RESULTS)
        is_of_results = has_marks or any(is_recording(folder / name) for name in names)
        require(
            not names or is_of_results,
            "an empty folder, or one of earlier results",
            _other_files(out, names),
            _WAY_OUT,
        )


def _other_files(out: str | Path, names: Sequence[str]) -> str:
    """The first files of a folder, for a message."""
    listed = ", ".join(names[:3])
    if len(names) > 3:
        listed += ", ..."
    return f"other files in {out}: {listed}"


def check_new_recording(out: str | Path, deltas: str | Path | None = None) -> None:
    """Checks that a recording, e.g. a copy of another one, may be written into a folder.

    Raises:
        InputError: the folder is inside a recording, contains one, or holds other files.
    """
    folder = Path(out).resolve()
    way_out = "Give a new or empty folder with --out."
    for parent in folder.parents:
        require(not is_recording(parent), "a folder outside of every recording", f"{out}, inside {parent}", way_out)
    contains = deltas is not None and folder in Path(deltas).resolve().parents
    require(not contains, "a folder that does not contain the recording", f"{out}, which contains {deltas}", way_out)
    # What a killed command has begun is written again, and a recording is refused by whoever writes the copy.
    other_files = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_of_recording = path.name.startswith((".", "journal", MANIFEST, AUXILIARY)) or path.name in _PARTS
        if not is_of_recording:
            other_files.append(path.name)
    require(not other_files, "an empty folder for a recording", _other_files(out, other_files), way_out)


def is_recording(folder: Path) -> bool:
    """Whether a folder is a recording; a dump of another system may have a manifest and rounds, and has no journal."""
    return (folder / MANIFEST).is_file() and bool(journals_in(folder))


def _by_fedleak(path: Path) -> bool:
    """Whether fedleak wrote a results.json."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.keys() >= _KEYS_OF_RESULTS


@contextlib.contextmanager
def only_command(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Locks a folder of results for one command, or for several parts of one; the lock ends with the process.

    Args:
        folder: the folder.
        shared: whether this is a part; other parts may write at the same time.

    Raises:
        InputError: another command writes there.
        OSError: the folder cannot be written to.
    """
    path = folder / LOCK
    while True:
        lock = open(path, "a+", opener=open_private)  # noqa: SIM115 - an opener; closed below
        try:
            kind_of_lock = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(lock, kind_of_lock | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise InputError(
                expected="a folder that no other command writes its results to",
                found=f"one that writes to {folder}",
                way_out="Wait until it has ended, or give another folder with --out.",
            ) from None
        # The command that held the lock before removes the file at its end: then the lock is on nothing.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                break
        lock.close()
    try:
        yield
    finally:
        # The last of several parts removes the file; it is the only one that can lock it for itself.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        lock.close()
