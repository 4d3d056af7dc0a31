"""Folder of the results of a command: where it is by default, and that it can be written to before any work."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from protocol.errors import InputError


def folder_above(deltas: str) -> Path:
    """Parent folder of a recording."""
    return Path(deltas).resolve().parent


@contextlib.contextmanager
def results_folder(directory: str | Path) -> Iterator[Path]:
    """The folder, made if it does not exist and tested for writing; removed if the work fails and left nothing there.

    Raises:
        InputError: it is a file, or cannot be made or written to.
    """
    folder = Path(directory)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        file = next((path for path in (folder, *folder.parents) if path.is_file()), None)
        raise InputError(
            expected=f"a folder for the results at {folder}",
            found=str(error.strerror or error).lower() if file is None else f"the file {file}",
            way_out="Give another folder with --out.",
        ) from None
    try:
        yield folder
    except BaseException:
        with contextlib.suppress(OSError):  # it holds results
            for path in made:
                path.rmdir()
        raise
