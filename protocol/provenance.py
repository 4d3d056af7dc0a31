"""Provenance of results: command, code, packages and hardware."""

import functools
import hashlib
import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch

_PACKAGES = ("torch", "lightning", "torchmetrics", "numpy", "scipy", "scikit-learn", "diffprivlib", "safetensors")
CHECKOUT = Path(__file__).resolve().parent.parent
ROOMS = (
    "attacks",
    "callbacks",
    "client",
    "datamodules",
    "defenses",
    "evaluation",
    "experiments",
    "modules",
    "protocol",
    "recordings",
    "reports",
    "server",
)


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


def hardware() -> str:
    """Processor, number of cores and GPUs."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ", ".join([_processor(), f"{os.cpu_count()} cores", *gpus])


def command() -> str:
    """Command line of the process as it was typed, with its paths."""
    return shlex.join(sys.orig_argv)


def published(typed: str) -> str:
    """Command line without names of folders outside the checkout, for files that others read.

    Args:
        typed: result of `command`.
    """
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
