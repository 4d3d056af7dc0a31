"""Work in several processes, each with one thread, which end with the process that started them."""

import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from joblib import Parallel, delayed, parallel_config

from fedleak.core.errors import require
from fedleak.core.signals import end_with_parent

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


def default_jobs() -> int:
    """Default number of processes: the number of cores."""
    return len(os.sched_getaffinity(0))


def place_of(part: str | None) -> tuple[int, int]:
    """I and N of a part ``I/N`` with I from 0 to N - 1; 0 and 1 for None.

    Raises:
        InputError: the part has another form.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", part or "0/1")
    first, count = (int(found[1]), int(found[2])) if found else (0, 0)
    require(first < count, "--part I/N with I from 0 to N - 1", part, "The two halves are 0/2 and 1/2.")
    return first, count


def in_processes(function: Callable[[_Part], _Result], work: Sequence[_Part], *, jobs: int) -> Iterator[_Result]:
    """Yields what a function returns for each part of some work, in order.

    Args:
        function: function of a module, which other processes can import.
        work: its arguments.
        jobs: number of processes; with 1, or for one part, this process does the work, with all its threads.
    """
    if min(jobs, len(work)) < 2:
        yield from map(function, work)
        return
    # A worker that waits for its first part ends with this process too.
    watch = {"initializer": end_with_parent, "initargs": (os.getpid(),)}
    with parallel_config("loky", inner_max_num_threads=1, **watch):
        parallel = Parallel(n_jobs=min(jobs, len(work)), return_as="generator", pre_dispatch=jobs)
        yield from parallel(delayed(_in_process)(function, part, Path.cwd(), sys.path, os.getpid()) for part in work)


def _in_process(
    function: Callable[[_Part], _Result], part: _Part, folder: Path, path: Sequence[str], parent: int
) -> _Result:
    os.chdir(folder)  # joblib reuses processes, which may have started in another folder
    sys.path[:] = path  # packages outside of the checkout
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the parent ends the workers
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    return function(part)
