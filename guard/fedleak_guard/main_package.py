"""Where the main package fedleak is, with whose attacks the guard attacks its own message."""

import functools
import importlib
import importlib.metadata
import sys
from pathlib import Path
from typing import Any

from fedleak_guard.check import NotMadeError
from fedleak_recorder.errors import InputError

_DISTRIBUTION = "fedleak"
_ROOMS = "protocol/view.py", "attacks/base.py", "defenses/model_checks/base.py"
"""Files of a checkout that is on the path without being installed; a folder that has them all is one."""


def is_installed() -> bool:
    """Whether the main package is installed, or a checkout of it is on the path.

    An import does not show it: the package's modules have names such as ``client``, which a file of an app may have
    too. That import then fails, or is another module, though fedleak is there.
    """
    return _is_on(tuple(sys.path), _DISTRIBUTION)


@functools.lru_cache(maxsize=8)
def _is_on(path: tuple[str, ...], distribution: str) -> bool:
    """Whether a path has the distribution, or a checkout."""
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return any(_is_checkout(Path(entry)) for entry in path)
    return True


def main_module(name: str) -> Any:
    """A module of the main package, or of what it needs.

    Raises:
        NotMadeError: the main package is not installed.
        InputError: it is installed, and the module cannot be imported, so that checks would silently be left out.
    """
    if not is_installed():
        raise NotMadeError("the main package fedleak is not installed")
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise InputError(
            expected=f"the module {name} of fedleak, which is installed",
            found=f"{type(error).__name__}: {error}",
            way_out="Start where no file has the name of one of its folders (client.py, server.py), and install all it "
            "needs; until then nothing leaves the site.",
        ) from None


def _is_checkout(folder: Path) -> bool:
    try:
        return all((folder / room).is_file() for room in _ROOMS)
    except (OSError, ValueError):
        return True  # a folder that cannot be read may be one
