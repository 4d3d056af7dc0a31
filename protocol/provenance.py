"""Provenance of results: command, code, packages and hardware."""

import ast
import functools
import hashlib
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("torch", "lightning", "torchmetrics", "numpy", "scipy", "scikit-learn", "diffprivlib", "safetensors")
CHECKOUT = Path(__file__).resolve().parent.parent
ROOMS = (
    *("attacks", "callbacks", "client", "datamodules", "defenses", "evaluation"),
    *("experiments", "modules", "protocol", "recordings", "reports", "server"),
)
_COVERED = (*ROOMS, "fedleak_recorder", "lightning", "torch")
"""Packages that `source_hash` or `versions` covers."""


def hashed(content: Any) -> str:
    """SHA-256 of the JSON of some content."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect numbers."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def commit() -> str | None:
    """Commit of the code, with a plus if tracked files have been changed since; None outside of a checkout."""
    asked = ["git", "describe", "--always", "--abbrev=40", "--match=", "--dirty=+"]
    try:
        done = subprocess.run(asked, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


@functools.cache
def source_hash() -> str:
    """Hash of the source files and tables of numbers on disk, committed or not."""
    whole = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((CHECKOUT / room).rglob("*")):
            if path.suffix in {".py", ".csv", ".json", ".yaml"}:
                own = hashlib.sha256(path.read_bytes()).hexdigest()
                whole.update(f"{path.relative_to(CHECKOUT).as_posix()} {own}\n".encode())
    return whole.hexdigest()


def outside_sources(modules: Iterable[str]) -> list[str]:
    """Hashes of modules from outside the project and of all modules that they import, within functions too.

    Imports of installed packages are not followed.

    Args:
        modules: names of modules that are imported; those of the project are left out.
    """
    waiting = [name for name in modules if name.partition(".")[0] not in _COVERED]
    files = {name: Path(str(sys.modules[name].__file__)) for name in waiting}
    known = set[str]()
    while waiting:
        name = waiting.pop()
        file = None if name in known else _outside_file(name)
        known.add(name)
        if file is not None:
            files[name] = file
            package = name if file.stem == "__init__" else name.rpartition(".")[0]
            waiting += [name.rpartition(".")[0], *_imports(file, package)]
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
        spec = PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations)
    installed = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    if spec is None or spec.origin is None or not spec.origin.endswith(".py") or spec.origin.startswith(installed):
        return None
    return Path(spec.origin)


def _imports(file: Path, package: str) -> Iterator[str]:
    """Names that a module of a package may import as modules."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))


def hardware() -> str:
    """Processor, number of cores and GPUs."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ", ".join([_processor(), f"{os.cpu_count()} cores", *gpus])


def command() -> str:
    """Command line of the process as it was typed, with its paths."""
    return shlex.join(sys.orig_argv)


def published(typed: str) -> str:
    """Command line without names of folders outside the checkout, for files that others read."""
    words = shlex.split(typed)
    program = [Path(word).name in ("attack.py", "train.py") for word in words]
    start = program.index(True) if any(program) else 0
    return shlex.join(["python", *map(_short, words[start:])] if any(program) else map(_short, words))


def _short(argument: str) -> str:
    path = Path(argument)
    if not path.is_absolute():
        return argument
    return os.path.relpath(path, CHECKOUT) if path.is_relative_to(CHECKOUT) else path.name


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
