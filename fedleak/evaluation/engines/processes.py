"""Processes of this machine, each with one thread, which end with the process that started them."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from joblib import Parallel, delayed, parallel_config

from fedleak.core.signals import end_with_parent
from fedleak.evaluation.engines.engine import Engine, Part, Result


@dataclass(frozen=True, kw_only=True)
class Processes(Engine):
    """Processes of this machine; with one job, or for one part, this process does the work, with all its threads."""

    name = "processes"

    @property
    def in_this_process(self) -> bool:
        """Whether the calling process does the work itself."""
        return self.jobs == 1

    @property
    def in_words(self) -> str:
        """How work ran, for a report."""
        if self.in_this_process:
            return "this process"
        return f"{self.jobs} processes of one machine, with one thread each"

    def run(self, function: Callable[[Part], Result], work: Sequence[Part]) -> Iterator[Result]:
        """Yields what a function returns for each part of some work, in order."""
        workers = min(self.jobs, len(work))
        if workers < 2:
            yield from map(function, work)
            return
        # A worker that waits for its first part ends with this process too.
        watch = {"initializer": end_with_parent, "initargs": (os.getpid(),)}
        with parallel_config("loky", inner_max_num_threads=1, **watch):
            parallel = Parallel(n_jobs=workers, return_as="generator", pre_dispatch=self.jobs)
            yield from parallel(
                delayed(_in_process)(function, part, Path.cwd(), sys.path, os.getpid()) for part in work
            )


def _in_process(
    function: Callable[[Part], Result], part: Part, folder: Path, path: Sequence[str], parent: int
) -> Result:
    os.chdir(folder)  # joblib reuses processes, which may have started in another folder
    sys.path[:] = path  # packages outside of the checkout
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the parent ends the workers
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    return function(part)
