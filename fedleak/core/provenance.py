"""Provenance of results: command, code and packages."""

import ast
import functools
import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedleak.core.places import CHECKOUT, PACKAGE

_PACKAGES = ("torch", "lightning", "torchmetrics", "numpy", "scipy", "scikit-learn", "diffprivlib", "safetensors")
_COVERED = ("fedleak", "fedleak_recorder", "lightning", "torch")
"""Packages that `source_hash` or `versions` covers."""


def hashed(content: Any) -> str:
    """SHA-256 of the JSON of some content."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect numbers."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def commit() -> str | None:
    """Commit of the code, with a plus if tracked files have been changed since; None outside of a checkout."""
    if CHECKOUT is None:
        return None  # git would answer for the repository that the installation happens to lie in
    # --match= matches no tag, so that the commit itself is named, whole; --dirty adds the plus.
    git_command = ["git", "describe", "--always", "--abbrev=40", "--match=", "--dirty=+"]
    try:
        done = subprocess.run(git_command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


@functools.cache
def source_hash() -> str:
    """Hash of the source files and tables of numbers on disk, committed or not."""
    digest = hashlib.sha256()
    # Rooms of additions are links in a checkout, which a search from above would not follow.
    for room in sorted(init.parent for init in PACKAGE.glob("*/__init__.py")):
        for path in sorted(room.rglob("*")):
            if path.suffix in {".py", ".csv", ".json", ".yaml"}:
                file_hash = hashlib.sha256(path.read_bytes()).hexdigest()
                # Names count too: a file that moves changes what is imported.
                digest.update(f"{path.relative_to(PACKAGE).as_posix()} {file_hash}\n".encode())
    return digest.hexdigest()


def outside_sources(modules: Iterable[str]) -> list[str]:
    """Hashes of modules from outside the project and of all modules that they import, within functions too.

    Imports of installed packages are not followed.

    Args:
        modules: names of modules that are imported; those of the project are left out.
    """
    waiting = [name for name in modules if name.partition(".")[0] not in _COVERED]
    # The modules themselves are imported; what they import is searched without running it.
    files = {name: Path(str(sys.modules[name].__file__)) for name in waiting}
    visited = set[str]()
    while waiting:
        name = waiting.pop()
        if name in visited:
            continue
        visited.add(name)
        file = _outside_file(name)
        if file is None:
            continue
        files[name] = file
        parent = name.rpartition(".")[0]
        package = name if file.stem == "__init__" else parent
        # To import a module runs the __init__.py of the packages above it.
        waiting += [parent, *_imports(file, package)]
    return [hashlib.sha256(files[name].read_bytes()).hexdigest() for name in sorted(files)]


def _outside_file(module: str) -> Path | None:
    """Source of a module, without importing it; None if it is the project's, installed, or no module."""
    top, *below = module.split(".")
    if top in _COVERED or top in sys.stdlib_module_names or not top:
        return None
    spec = importlib.util.find_spec(top)
    for name in below:
        if spec is None or spec.submodule_search_locations is None:
            return None
        # find_spec of importlib would import the packages above.
        spec = PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    # Installed packages have versions; what lies elsewhere has only its text.
    installed = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    if spec.origin.startswith(installed):
        return None
    return Path(spec.origin)


def _imports(file: Path, package: str) -> Iterator[str]:
    """Names that a module of a package may import as modules."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            relative_name = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(relative_name, package)
            yield base
            # What is imported from a package may be a module of it.
            for alias in node.names:
                yield f"{base}.{alias.name}"


def command() -> str:
    """Command line of the process as it was typed, with its paths."""
    return shlex.join(sys.orig_argv)


def published(typed: str) -> str:
    """Command line for files that others read, without folders elsewhere, addresses, keys and account names.

    A value stands only if it is of a kind that names nothing of a machine: numbers, lists of them, plain words, names
    of settings with such a value, and paths below the checkout or relative to the working directory. ``...`` stands
    for all others, for what looks like a key, and for the values of options whose names speak of one.

    >>> published("python /opt/bin/fedleak audit /srv/jane/deltas --out runs/a --to.token 1 --seed 3")
    'fedleak audit ... --out runs/a --to.token ... --seed 3'
    """
    try:
        words = shlex.split(typed)
    except ValueError:  # no command line
        return LEFT_OUT
    shown: list[str] = []
    # What stands before the program (the interpreter, a launcher) is replaced by the program's public form.
    for number, word in enumerate(words):
        program = _PROGRAMS.get(Path(word).name)
        if program is not None:
            shown += program
            words = words[number + 1 :]
            break
    is_secret = False  # whether the next word is the value of a secret option
    for word in words:
        option_match = _OPTION.fullmatch(word)
        if option_match is None:
            shown.append(LEFT_OUT if is_secret else _shown(word))
            is_secret = False
            continue
        option = option_match["option"]
        is_secret = _SECRET.search(option) is not None
        if not option_match["given"]:
            shown.append(option)
            continue
        # --option=value has its value in the same word.
        value = LEFT_OUT if is_secret else _shown(option_match["value"])
        shown.append(f"{option}={value}")
        is_secret = False
    return " ".join(_quoted(word) for word in shown)


def _quoted(word: str) -> str:
    if word == LEFT_OUT or _PLAIN.fullmatch(word):
        return word
    return shlex.quote(word)


def without_paths(text: str) -> str:
    """A sentence without absolute paths, paths of a home and addresses, which may name people and machines.

    >>> without_paths("expected a file; found nothing at /srv/jane/a.yaml. See docs/audit/gate.md.")
    'expected a file; found nothing at ... See docs/audit/gate.md.'
    """
    return _PATH_IN_TEXT.sub(LEFT_OUT, text)


LEFT_OUT = "..."
"""What stands for an argument that is not published."""
_PROGRAMS = {
    "fedleak": ["fedleak"],  # of an installation, or `python -m fedleak`
    "fedleak-train": ["fedleak-train"],
    "attack.py": ["python", "attack.py"],  # of a checkout
    "train.py": ["python", "train.py"],
}
"""Programs whose arguments are known, as they are published."""
_OPTION = re.compile(r"(?P<option>--?[A-Za-z][\w.-]*)(?P<given>=?)(?P<value>.*)", re.DOTALL)
_SECRET = re.compile(r"key|token|secret|passw|credential|auth|cookie|sign|(^|[._-])(pw|pwd|pass)$", re.IGNORECASE)
"""What the name of an option or setting with a key speaks of."""
_PLAIN = re.compile(r"[\w.,+=/-]+", re.ASCII)
_WORDS = re.compile(r"[\w.,+-]*", re.ASCII)
"""Value without a path, an address or a mapping."""
_RELATIVE = re.compile(r"[\w.+-]+(/[\w.+-]+)*/?", re.ASCII)
"""Path below the working directory, or a limit such as ``record-membership/auc``."""
_SETTING = re.compile(r"(?P<name>[\w./-]+)=(?P<value>.*)", re.DOTALL | re.ASCII)
_RANDOM = re.compile(r"(?=[^\W_]*\d)(?=[^\W_]*[A-Za-z])[^\W_]{16,}", re.ASCII)
"""Letters and digits in one piece, as in a key or a hash; names have separators or are shorter."""
_PATH_IN_TEXT = re.compile(
    r"(?<=')[~/][^']*|(?<=\")[~/][^\"]*|(?<![\w.>)])(?:[A-Za-z][A-Za-z+.-]*://|~|\.\./|/(?=[^\s/]))[^\s'\",;:]*"
)


def _shown(value: str) -> str:
    """An argument, or `LEFT_OUT` where it may name a person, a place or a key."""
    path = Path(value)
    if path.is_absolute():
        resolved = Path(os.path.normpath(path))
        value = LEFT_OUT
        # A path within the checkout is the same for everybody, relative to it.
        if CHECKOUT is not None and resolved.is_relative_to(CHECKOUT):
            value = str(resolved.relative_to(CHECKOUT))
    if value[:1] in ("{", "["):
        return value if _is_harmless(value) else LEFT_OUT
    setting = _SETTING.fullmatch(value)
    if setting is None:
        return value if _is_word(value) else LEFT_OUT
    name = setting["name"]
    if not _is_word(name):
        return LEFT_OUT
    setting_value = LEFT_OUT if _SECRET.search(name) else _shown(setting["value"])
    return f"{name}={setting_value}"


def _is_word(value: str) -> bool:
    """Whether a value is a plain word, a list of them, or a path below the working directory."""
    parts = value.split("/")
    if _RANDOM.search(value) or ".." in parts:
        return False
    return bool(_WORDS.fullmatch(value) or _RELATIVE.fullmatch(value))


def _is_harmless(text: str) -> bool:
    """Whether a value in JSON or YAML's short form holds plain names, numbers and truth values alone."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        # [a, b] without quotes
        return re.fullmatch(r"\[[\w., +-]*\]", text, re.ASCII) is not None and not _RANDOM.search(text)
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if any(_SECRET.search(key) or not _WORDS.fullmatch(key) or _RANDOM.search(key) for key in value):
                return False
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str) and (not _WORDS.fullmatch(value) or not _is_word(value)):
            return False
    return True
