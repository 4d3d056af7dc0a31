"""Results of a command: a folder that can be written to before any work, and the last lines on what is where."""

import contextlib
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedleak.core.errors import InputError
from fedleak_recorder.files import make_folder, openness

_RESULTS = {
    "report": ("report.html",),
    "statement": ("statement.html", "statement.json"),
    "results": ("results.json", "scores.csv", "changes.csv", "gate.xml", "gate.sarif"),
}


def folder_above(recording: str) -> Path:
    """Parent folder of a recording."""
    return Path(recording).resolve().parent


@contextlib.contextmanager
def results_folder(directory: str | Path, *, readable: str = "") -> Iterator[Path]:
    """The folder, made if it does not exist and tested for writing; removed if the work fails and left nothing there.

    Args:
        directory: the folder.
        readable: name of the file that those who may read the folder may read too; empty for none.

    Raises:
        InputError: it is a file, or cannot be made or written to.
    """
    folder = Path(directory)
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        make_folder(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        reason = str(error.strerror or error).lower()
        for path in (folder, *folder.parents):
            if path.is_file():
                reason = f"the file {path}"
                break
        raise InputError(
            expected=f"a folder for the results at {folder}",
            found=reason,
            way_out="Give another folder with --out.",
        ) from None
    if open_to_others := openness(folder, readable=readable):
        print(open_to_others, file=sys.stderr)
    try:
        yield folder
    except BaseException:
        # The innermost first; the first that holds results is kept, and all above it.
        with contextlib.suppress(OSError):
            for path in new_folders:
                path.rmdir()
        raise


def results_in(directory: Path) -> dict[str, list[Path]]:
    """Files of results in a folder by what they are."""
    return {name: [directory / file for file in files] for name, files in _RESULTS.items()}


def print_outputs(paths_by_name: Mapping[str, Sequence[Path]], *, then: str) -> None:
    """Prints the files and folders that exist, by what they are, and the next command."""
    for name, paths in paths_by_name.items():
        present = [str(path) for path in paths if path.exists()]
        if present:
            print(f"{name}: {', '.join(present)}")
    print(f"next: {then}")


def shell_command(*words: str | Path, why: str = "") -> str:
    """Command line, quoted for a shell, with a remark on what it does."""
    command = shlex.join(["fedleak", *map(str, words)])
    if why:
        return f"{command}  # {why}"
    return command
