"""What a job of submitit runs: one part of the work, which ends with the submitter on one machine."""

import contextlib
import fcntl
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import torch
from submitit.helpers import Checkpointable

from fedleak.core.errors import InputError, ViewError
from fedleak.core.private_files import private_files
from fedleak.evaluation.engines.engine import Part, Result


@dataclass(frozen=True)
class PartResult:
    """What a part returned, or what it refused."""

    result: Any = None
    refusal: InputError | ViewError | None = None

    def value(self) -> Any:
        """The result; raises the refusal."""
        if self.refusal is not None:
            raise self.refusal
        return self.result


class SubmittedJob(Checkpointable, Generic[Part, Result]):
    """What a job runs; a requeued one is started with the same argument, and its part goes on from its files.

    Args:
        function: function of a module.
        threads: threads of torch.
        lock: file that the submitter locks as long as it lives; None if the job outlives it.
    """

    def __init__(self, function: Callable[[Part], Result], threads: int, lock: Path | None) -> None:
        self.function = function
        self.threads = threads
        self.lock = lock

    def __call__(self, part: Part) -> PartResult:
        """Runs a part. What it refuses is no failure of the job: it would be refused again."""
        if self.lock is not None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # submitit passes over it: on SLURM it announces a preemption
            threading.Thread(target=_end_with_submitter, args=(self.lock,), daemon=True).start()
        torch.set_num_threads(self.threads)
        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
        with private_files():
            try:
                return PartResult(self.function(part))
            except (InputError, ViewError) as error:
                return PartResult(refusal=error)


def _end_with_submitter(lock: Path, every: float = 1.0) -> None:
    """Ends this process when no other one locks a file any more."""
    with lock.open() as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os._exit(1)
            time.sleep(every)
