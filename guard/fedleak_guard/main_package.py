"""Where the main package fedleak is, with whose attacks the guard attacks its own message."""

import functools
import importlib
import importlib.metadata
import sys
from importlib.machinery import PathFinder
from typing import Any

from fedleak_guard.check import NotMadeError
from fedleak_recorder.errors import InputError

_NAME = "fedleak"
"""Of the distribution, and of its only package."""


def is_installed() -> bool:
    """Whether the main package is installed, or a checkout of it is on the path.

    A file or folder of an app that has its name counts too. What the guard needs of it is then not there, and nothing
    leaves.
    """
    return _is_on(tuple(sys.path), _NAME)


@functools.lru_cache(maxsize=8)
def _is_on(path: tuple[str, ...], name: str) -> bool:
    """Whether a path has the distribution, or anything of its name."""
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        try:
            return PathFinder.find_spec(name, list(path)) is not None
        except (OSError, ValueError):
            return True  # a folder that cannot be read may have it
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
            way_out="Start where no file or folder is named fedleak, and install all that fedleak needs; until then "
            "nothing leaves the site.",
        ) from None
