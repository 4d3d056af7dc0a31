"""Jobs that submitit submits from Python: on SLURM, or as processes of this machine."""

import hashlib
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import submitit

from fedleak.core.errors import require
from fedleak.core.private_files import private_files
from fedleak.core.ranges import NonNegativeInt, PositiveFloat, PositiveInt, check_fields
from fedleak.evaluation.engines.engine import Engine, EngineOptions, Part, Result
from fedleak.evaluation.engines.submission import Submission
from fedleak_recorder.files import PRIVATE_FOLDER, make_folder
from fedleak_recorder.format import only_writer

_ON_A_CLUSTER = 16
"""Jobs at the same time on SLURM, where this machine's cores say nothing."""
_WARNING = 90
"""Seconds before the time limit at which a job is told to be requeued, as in ``configs/cluster``."""
_PROGRAMS = ("sbatch", "srun", "squeue", "scancel")
"""Programs of SLURM that are called."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables of the environment that set the number of threads of libraries."""
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
        if options.arguments.get("cluster") == "local":
            jobs = options.jobs_on_one_machine
        else:
            jobs = options.jobs or _ON_A_CLUSTER
        return cls._made(options, jobs=jobs)

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
        digest = hashlib.sha256(str(self.folder.absolute()).encode()).hexdigest()
        return f"fedleak-{digest[:12]}"

    def run(self, function: Callable[[Part], Result], work: Sequence[Part]) -> Iterator[Result]:
        """Yields what a function returns for each part of some work, in order."""
        if not work:
            return
        _make_own_folder(self.folder)
        with only_writer(self.folder), private_files():
            submission = Submission(self, function, work)
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
        path = os.pathsep.join(directory or str(Path.cwd()) for directory in sys.path)
        threads = [f"{name}={self.cpus}" for name in _THREADS]
        python = shlex.join(["env", f"PYTHONPATH={path}", *threads, sys.executable, "-P"])
        kind = submitit.SlurmExecutor if self.cluster == "slurm" else submitit.LocalExecutor
        executor = kind(self.folder, max_num_timeout=self.requeues, python=python)
        parameters = self._slurm_parameters() if self.cluster == "slurm" else self._local_parameters()
        executor.update_parameters(**parameters)
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
        # Options that are not given have SLURM's defaults.
        if self.partition is not None:
            parameters["partition"] = self.partition
        if self.account is not None:
            parameters["account"] = self.account
        if self.gpus:
            parameters["gpus_per_node"] = self.gpus
        if self.memory_gb is not None:
            parameters["mem"] = f"{round(self.memory_gb * 1024)}MB"
        return parameters


def _make_own_folder(folder: Path) -> None:
    """Makes a folder that nobody else may write to, or refuses one that belongs to another account."""
    make_folder(folder)
    status = folder.lstat()
    belongs_to_account = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    require(
        belongs_to_account,
        f"{folder} as a folder of this account",
        "one of another, or a link",
        "Give another --out.",
    )
    folder.chmod(PRIVATE_FOLDER)


def _remove_temporary(folder: Path) -> None:
    for pattern in _TEMPORARY:
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
