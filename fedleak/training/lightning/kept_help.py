"""Help of ``train.py``, kept in the user's cache: making it imports Lightning and all learners, for seconds."""

import contextlib
import io
import platform
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from fedleak.core.places import PACKAGE
from fedleak.core.source_cache import keep, read_kept, source_key

_PACKAGES = ("jsonargparse", "lightning", "torch", "torchmetrics")
"""Packages whose version the help depends on."""
_CLASS_HELP = re.compile(r"--[a-z_.]+\.help(=[A-Za-z]\w*)?")
"""Option for the help of a class, which may follow as the next word."""


def is_kept(words: Sequence[str]) -> bool:
    """Whether a command line asks for help that depends on the sources of fedleak alone.

    That is the help of a command, or of a class of fedleak by its short name. Where configurations or classes of
    others are named, their files count too.

    >>> is_kept(["fit", "--help"]), is_kept(["fit", "--model.help", "FNCF"]), is_kept(["fit", "--model", "a.B", "-h"])
    (True, True, False)
    """
    if len(words) == 2 and words[0].isalpha():
        return words[1] in ("--help", "-h") or _CLASS_HELP.fullmatch(words[1]) is not None
    is_class = len(words) == 3 and words[0].isalpha() and bool(_CLASS_HELP.fullmatch(words[1]))
    return is_class and words[2].isidentifier()


def kept_help(words: Sequence[str], show: Callable[[], object]) -> str:
    """The help that a command line asks for, read from the cache until a source file or a package changes.

    Args:
        words: the command line.
        show: function that prints the help and ends with `SystemExit`.

    Raises:
        SystemExit: it ended with an error, whose message it has printed.
    """
    rooms = sorted(init.parent.name for init in PACKAGE.glob("*/__init__.py"))
    versions = [platform.python_version(), *(f"{name} {version(name)}" for name in _PACKAGES)]
    shape = [Path(sys.argv[0]).name, str(shutil.get_terminal_size().columns)]
    # A file for each command line; its content is read only while sources and packages are the same.
    name = f"help-{sha256(repr((*words, *shape)).encode()).hexdigest()[:12]}"
    key = source_key(rooms, *versions, *words, *shape)
    cached_help = read_kept(name, key)
    if isinstance(cached_help, str):
        return cached_help
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            show()
    except SystemExit as end:
        if end.code:
            print(printed.getvalue(), end="")
            raise
    keep(name, key, printed.getvalue())
    return printed.getvalue()
