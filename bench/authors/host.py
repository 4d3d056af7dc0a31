"""One side of a contest: loads inputs from a file, and attacks them when it is asked to. Needs only numpy."""

import importlib
import json
import os
import sys
import time

import numpy as np
from numpy.typing import NDArray

from bench.peak_memory import peak_mib

Arrays = dict[str, NDArray[np.generic]]
"""Inputs or estimates by name; a number is an array without dimensions."""


def main() -> None:
    """``python -m bench.authors.host MODULE INPUTS``; a line on standard input names the file for the estimates.

    MODULE has a function ``prepare`` of the inputs, which returns the attack: a function that returns the estimates.
    The answer is a line of JSON: ``seconds`` of the attack, and the ``peak`` of memory in MiB, with that before the
    first attack as ``loaded``.
    """
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries' output goes to stderr
    module, path = sys.argv[1:]
    attack = importlib.import_module(module).prepare(load(path))
    loaded = peak_mib()
    for line in sys.stdin:
        start = time.perf_counter()
        estimates: Arrays = attack()
        seconds = time.perf_counter() - start
        np.savez(line.strip(), **estimates)  # type: ignore[arg-type]
        print(json.dumps({"seconds": seconds, "loaded": loaded, "peak": peak_mib()}), file=out, flush=True)


def load(path: str | os.PathLike[str]) -> Arrays:
    """Arrays of an npz file, by name."""
    with np.load(path) as archive:
        return dict(archive)


def part(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names begin with ``prefix/``, without it."""
    return {name.removeprefix(f"{prefix}/"): value for name, value in arrays.items() if name.startswith(f"{prefix}/")}


if __name__ == "__main__":
    main()
