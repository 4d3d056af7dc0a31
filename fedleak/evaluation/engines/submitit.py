"""Jobs that submitit submits from Python: on SLURM, or as processes of this machine."""

import contextlib
import fcntl
import hashlib
import logging
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Self

import submitit
import torch
from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.helpers import Checkpointable

from fedleak.core.errors import InputError, ViewError, require
from fedleak.core.private_files import private_files
from fedleak.core.ranges import NonNegativeInt, PositiveFloat, PositiveInt, check_fields
from fedleak.evaluation.engines.engine import Engine, EngineOptions, Part, Result
from fedleak_recorder.files import PRIVATE_FOLDER, make_folder
from fedleak_recorder.format import LOCK, only_writer

_ON_A_CLUSTER = 16
"""Jobs at the same time on SLURM, where this machine's cores say nothing."""
_LARGEST_ARRAY = 1000
"""Tasks of an array: SLURM allows 1,001 unless it is configured otherwise."""
_WARNING = 90
"""Seconds before the time limit at which a job is told to be requeued, as in ``configs/cluster``."""
_LATE = 15.0
"""Seconds for which a result may be on its way through a shared file system after its job has left the queue."""
_PROGRAMS = ("sbatch", "srun", "squeue", "scancel")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_TEMPORARY = ("*.pkl", "*.pkl.save_tmp", "*_submission.sh", ".submission_file_*.sh")
"""Files of a run that hold arguments, results or commands, and not logs."""


@dataclass(frozen=True, kw_only=True)
class Submitit(Engine):
    """Jobs of submitit, one for each part of the work.

    A job that is lost (its machine fails, somebody kills it) or that fails is submitted again. One that comes near its
    time limit is requeued by submitit, and its part starts again from its files. A submitter that ends by a signal, or
    by an error, cancels its jobs. After one that was killed, the same command cancels what is left of them, and submits
    what is missing.

    Arguments and results travel as submitit's own pickles, through a folder of this run. It belongs to the account that
    runs the command, nobody else may write to it (mode 0700), and its pickles are removed before and after the run: no
    file of a stranger is ever unpickled. Logs stay there.

    Attributes:
        cluster: SLURM, or ``local`` for processes of this machine, which end with the submitter.
        partition: SLURM's partition; None for its default.
        account: SLURM's account; None for the default.
        minutes: time limit of a job.
        cpus: cores of a job, and its threads.
        memory_gb: memory of a job in gigabytes; None for the default.
        gpus: GPUs of a job; without one it runs on CPU.
        retries: how many times a part is submitted again after its job was lost or failed.
        requeues: how many times a part is requeued at its time limit.
        sbatch: further options of sbatch by name, e.g. ``--engine.sbatch.qos low``.
    """

    name = "submitit"

    cluster: Literal["slurm", "local"] = "slurm"
    partition: str | None = None
    account: str | None = None
    minutes: PositiveInt = 240
    cpus: PositiveInt = 1
    memory_gb: PositiveFloat | None = None
    gpus: NonNegativeInt = 0
    retries: NonNegativeInt = 2
    requeues: NonNegativeInt = 3
    sbatch: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, options: EngineOptions) -> Self:
        """The engine that a command wants."""
        local = options.arguments.get("cluster") == "local"
        return cls._made(options, jobs=options.jobs_on_one_machine if local else options.jobs or _ON_A_CLUSTER)

    @property
    def parts(self) -> int:
        """As many as jobs: each takes a while to start."""
        return self.jobs

    @property
    def in_words(self) -> str:
        """How work ran, for a report."""
        where = "SLURM" if self.cluster == "slurm" else "one machine"
        return f"jobs of submitit on {where}, {self.jobs} at a time, with {self.cpus} threads each"

    @property
    def job_name(self) -> str:
        """Name of this run's jobs: after its folder, so that another submitter for the same folder finds them."""
        return f"fedleak-{hashlib.sha256(str(self.folder.absolute()).encode()).hexdigest()[:12]}"

    def run(self, function: Callable[[Part], Result], work: Sequence[Part]) -> Iterator[Result]:
        """Yields what a function returns for each part of some work, in order."""
        if not work:
            return
        _make_own_folder(self.folder)
        with only_writer(self.folder), private_files():
            submission = _Submission(self, function, work)
            submission.cancel()  # what is left of a submitter that was killed
            _remove_temporary(self.folder)
            try:
                yield from submission.results()
            finally:
                submission.cancel()
                _remove_temporary(self.folder)

    def executor(self) -> Any:
        """Executor of submitit with these options.

        Raises:
            InputError: SLURM is not here, or submitit does not take the options.
        """
        missing = [program for program in _PROGRAMS if shutil.which(program) is None]
        way_out = "Start it where jobs are submitted, or give --engine.cluster local."
        expected = f"SLURM's {', '.join(_PROGRAMS)} for --engine submitit"
        require(self.cluster == "local" or not missing, expected, f"no {', '.join(missing)}", way_out)
        # Jobs find modules where this process does; -P: no file of the current folder hides a package.
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        threads = [f"{name}={self.cpus}" for name in _THREADS]
        python = shlex.join(["env", f"PYTHONPATH={path}", *threads, sys.executable, "-P"])
        kind = submitit.SlurmExecutor if self.cluster == "slurm" else submitit.LocalExecutor
        executor = kind(self.folder, max_num_timeout=self.requeues, python=python)
        executor.update_parameters(
            **(self._slurm_parameters() if self.cluster == "slurm" else self._local_parameters())
        )
        return executor

    def _local_parameters(self) -> dict[str, Any]:
        return {"timeout_min": self.minutes, "gpus_per_node": self.gpus, "signal_delay_s": _WARNING}

    def _slurm_parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "job_name": self.job_name,
            "time": self.minutes,
            "cpus_per_task": self.cpus,
            "array_parallelism": self.jobs,
            "signal_delay_s": _WARNING,
            # srun does not take the cores of its job by itself since SLURM 22.05.
            "srun_args": [f"--cpus-per-task={self.cpus}"],
            "additional_parameters": {"requeue": True, **self.sbatch},
        }
        given = {"partition": self.partition, "account": self.account, "gpus_per_node": self.gpus or None}
        parameters |= {name: value for name, value in given.items() if value is not None}
        if self.memory_gb is not None:
            parameters["mem"] = f"{round(self.memory_gb * 1024)}MB"
        return parameters


class _Submission(Generic[Part, Result]):
    """The jobs of one run."""

    def __init__(self, engine: Submitit, function: Callable[[Part], Result], work: Sequence[Part]) -> None:
        self.engine, self.work = engine, work
        lock = engine.folder.absolute() / LOCK if engine.cluster == "local" else None
        self.job = _Job(function, engine.cpus, lock)
        self.executor = engine.executor()
        self.slurm = engine.cluster == "slurm"
        self.running: dict[int, Any] = {}
        """Jobs that have not ended, by the number of their part."""
        self.queue = _Queue(engine.job_name)

    def results(self) -> Iterator[Result]:
        """Results in the order of the work."""
        waiting = list(range(len(self.work)))
        failures = [0] * len(self.work)
        results: dict[int, Result] = {}
        for number in range(len(self.work)):
            while number not in results:
                free = self._free()
                self._submit(waiting[:free])
                waiting = waiting[free:]
                time.sleep(1.0 if self.slurm else 0.1)
                for ended in self._ended():
                    job = self.running.pop(ended)
                    if job.paths.result_pickle.exists() and job.exception() is None:
                        results[ended] = job.result().value()
                        continue
                    failures[ended] += 1
                    self._check_failures(job, ended, failures[ended])
                    self._submit([ended])
            yield results.pop(number)

    def _free(self) -> int:
        """Number of jobs that may be submitted now."""
        if not self.slurm:
            return self.engine.jobs - len(self.running)
        # SLURM holds an array to its number of jobs at the same time, but not two arrays together.
        return 0 if self.running else _LARGEST_ARRAY

    def cancel(self) -> None:
        """Cancels jobs that have not ended, of this submitter or of one before it."""
        if self.slurm:
            # By name: a submitter may have been killed before it knew the number of its job.
            words = ["scancel", "--quiet", f"--user={os.geteuid()}", f"--name={self.engine.job_name}"]
            subprocess.run(words, check=False, capture_output=True)
            return
        for job in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                if not job.done():
                    os.kill(int(job.job_id), signal.SIGTERM)  # which its process passes on to the job

    def _submit(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        try:
            # A terminal sends SIGINT to all processes of a command; the submitter ends its jobs, without a traceback.
            with _blocked(signal.SIGINT):
                jobs = self.executor.map_array(self.job, [self.work[number] for number in numbers])
        except (FailedSubmissionError, FailedJobError) as error:
            raise InputError(
                expected="SLURM to take a job",
                found=str(error).strip(),
                way_out="Correct --engine.NAME, e.g. --engine.partition.",
            ) from error
        self.running.update(zip(numbers, jobs, strict=True))

    def _ended(self) -> list[int]:
        """Numbers of the parts whose jobs have ended, with a result or without one."""
        if not self.slurm:
            return [number for number, job in self.running.items() if job.done()]
        # Another machine's files appear in a folder that changes.
        self.engine.folder.chmod(PRIVATE_FOLDER)
        results = [number for number, job in self.running.items() if job.paths.result_pickle.exists()]
        lost = self.queue.lost({str(job.job_id): number for number, job in self.running.items()})
        return [*results, *(number for number in lost if number not in results)]

    def _check_failures(self, job: Any, number: int, failures: int) -> None:
        """Refuses to go on after too many jobs for one part."""
        log = job.paths.stderr
        lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
        require(
            failures <= self.engine.retries,
            f"a result of part {number + 1} of {len(self.work)}",
            f"{failures} jobs that ended without one: {lines[-1] if lines else 'the last one wrote nothing'}",
            f"See {log}. Parts that are done are kept: the same command goes on from there.",
        )


class _Queue:
    """Jobs of a name that SLURM has in its queue; submitit asks its accounting, which not every cluster keeps."""

    EVERY = 10.0
    """Seconds between two questions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = time.monotonic()
        self.missing_since: dict[str, float] = {}

    def lost(self, jobs: Mapping[str, int]) -> list[int]:
        """Parts, by the identifiers of their jobs, whose jobs have left the queue for longer than a result takes."""
        now = time.monotonic()
        if now - self.asked >= self.EVERY:
            self.asked = now
            queued = self._queued()
            if queued is not None:
                missing = jobs.keys() - queued
                self.missing_since = {job: self.missing_since.get(job, now) for job in missing}
        lost = [job for job, since in self.missing_since.items() if job in jobs and now - since >= _LATE]
        return [jobs[job] for job in lost]

    def _queued(self) -> set[str] | None:
        """Identifiers of waiting and running jobs; None if SLURM does not answer, which says nothing about them."""
        words = ["squeue", "--noheader", "--array", f"--user={os.geteuid()}", f"--name={self.name}", "--format=%i"]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
            if done.returncode == 0:
                return set(done.stdout.split())
        return None


@dataclass(frozen=True)
class _Outcome:
    """What a part returned, or what it refused."""

    result: Any = None
    refusal: InputError | ViewError | None = None

    def value(self) -> Any:
        """The result; raises the refusal."""
        if self.refusal is not None:
            raise self.refusal
        return self.result


class _Job(Checkpointable, Generic[Part, Result]):
    """What a job runs; a requeued one is started with the same argument, and its part goes on from its files.

    Args:
        function: function of a module.
        threads: threads of torch.
        lock: file that the submitter locks as long as it lives; None if the job outlives it.
    """

    def __init__(self, function: Callable[[Part], Result], threads: int, lock: Path | None) -> None:
        self.function, self.threads, self.lock = function, threads, lock

    def __call__(self, part: Part) -> _Outcome:
        """Runs a part. What it refuses is no failure of the job: it would be refused again."""
        if self.lock is not None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # submitit passes over it: on SLURM it announces a preemption
            threading.Thread(target=_end_with_submitter, args=(self.lock,), daemon=True).start()
        torch.set_num_threads(self.threads)
        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
        with private_files():
            try:
                return _Outcome(self.function(part))
            except (InputError, ViewError) as error:
                return _Outcome(refusal=error)


def _end_with_submitter(lock: Path, every: float = 1.0) -> None:
    """Ends this process when no other one locks a file any more."""
    with lock.open() as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os._exit(1)
            time.sleep(every)


def _make_own_folder(folder: Path) -> None:
    """Makes a folder that nobody else may write to, or refuses one that belongs to another account."""
    make_folder(folder)
    found = folder.lstat()
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    require(own, f"{folder} as a folder of this account", "one of another, or a link", "Give another --out.")
    folder.chmod(PRIVATE_FOLDER)


def _remove_temporary(folder: Path) -> None:
    for pattern in _TEMPORARY:
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _blocked(number: int) -> Iterator[None]:
    """Processes that the block starts never get a signal; this one gets it after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
