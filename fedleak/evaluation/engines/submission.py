"""The jobs of one run of submitit: submitted, watched in the queue, and submitted again where one is lost."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from submitit.core.utils import FailedJobError, FailedSubmissionError

from fedleak.core.errors import InputError, require
from fedleak.evaluation.engines.engine import Part, Result
from fedleak.evaluation.engines.submitted_job import SubmittedJob
from fedleak_recorder.files import PRIVATE_FOLDER
from fedleak_recorder.format import LOCK

if TYPE_CHECKING:
    from fedleak.evaluation.engines.submitit import Submitit

_LARGEST_ARRAY = 1000
"""Tasks of an array: SLURM allows 1,001 unless it is configured otherwise."""
_LATE = 15.0
"""Seconds for which a result may be on its way through a shared file system after its job has left the queue."""


class Submission(Generic[Part, Result]):
    """The jobs of one run."""

    def __init__(self, engine: "Submitit", function: Callable[[Part], Result], work: Sequence[Part]) -> None:
        self.engine = engine
        self.work = work
        self.slurm = engine.cluster == "slurm"
        # Processes of this machine end with the submitter; jobs of SLURM outlive it, and are cancelled.
        lock = None if self.slurm else engine.folder.absolute() / LOCK
        self.job = SubmittedJob(function, engine.cpus, lock)
        self.executor = engine.executor()
        self.running: dict[int, Any] = {}
        """Jobs that have not ended, by the number of their part."""
        self.queue = _Queue(engine.job_name)

    def results(self) -> Iterator[Result]:
        """Results in the order of the work."""
        waiting = list(range(len(self.work)))
        failures = [0] * len(self.work)
        # Results that came before those of earlier parts wait here.
        results: dict[int, Result] = {}
        # Seconds between two looks; SLURM's queue is asked less often.
        seconds = 1.0 if self.slurm else 0.1
        for number in range(len(self.work)):
            while number not in results:
                free = self._free()
                self._submit(waiting[:free])
                waiting = waiting[free:]
                time.sleep(seconds)
                for ended in self._ended():
                    job = self.running.pop(ended)
                    if job.paths.result_pickle.exists() and job.exception() is None:
                        results[ended] = job.result().value()
                        continue
                    # A job without a result is submitted again, as often as `retries` allows.
                    failures[ended] += 1
                    self._check_failures(job, ended, failures[ended])
                    self._submit([ended])
            yield results.pop(number)

    def _free(self) -> int:
        """Number of jobs that may be submitted now."""
        if not self.slurm:
            return self.engine.jobs - len(self.running)
        # SLURM holds an array to its number of jobs at the same time, but not two arrays together.
        if self.running:
            return 0
        return _LARGEST_ARRAY

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
        ended = []
        parts_by_job = {}
        for number, job in self.running.items():
            parts_by_job[str(job.job_id)] = number
            if job.paths.result_pickle.exists():
                ended.append(number)
        for number in self.queue.lost(parts_by_job):
            if number not in ended:
                ended.append(number)
        return ended

    def _check_failures(self, job: Any, number: int, failures: int) -> None:
        """Refuses to go on after too many jobs for one part."""
        log = job.paths.stderr
        last_line = "the last one wrote nothing"
        if log.is_file():
            lines = log.read_text(errors="replace").strip().splitlines()
            last_line = lines[-1] if lines else last_line
        require(
            failures <= self.engine.retries,
            f"a result of part {number + 1} of {len(self.work)}",
            f"{failures} jobs that ended without one: {last_line}",
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
        lost = []
        for job, since in self.missing_since.items():
            if job in jobs and now - since >= _LATE:
                lost.append(jobs[job])
        return lost

    def _queued(self) -> set[str] | None:
        """Identifiers of waiting and running jobs; None if SLURM does not answer, which says nothing about them."""
        words = ["squeue", "--noheader", "--array", f"--user={os.geteuid()}", f"--name={self.name}", "--format=%i"]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
            if done.returncode == 0:
                return set(done.stdout.split())
        return None


@contextlib.contextmanager
def _blocked(number: int) -> Iterator[None]:
    """Processes that the block starts never get a signal; this one gets it after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
