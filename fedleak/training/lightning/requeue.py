"""Requeue of a SLURM job between two rounds, before its time limit."""

import logging
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

_logger = logging.getLogger(__name__)


class Requeue(Callback):
    """On SIGUSR1 in a SLURM job, finishes the round, saves ``hpc_ckpt_N.ckpt`` in the run's folder and requeues.

    The restarted job resumes in the same folder: Lightning loads the newest of these checkpoints.

    Lightning's own handler saves wherever the signal finds each process: within a round, where some private parameters
    are trained and others are not, or while another rank waits for a reduction. This callback only notes the signal;
    after each round the ranks agree, so a requeued training ends in the same model and recording as an uninterrupted
    one. It must be the last of the callbacks with a state.
    """

    def __init__(self) -> None:
        self._asked = False
        self._before: Any = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Installs the signal handler, which Lightning then leaves in place."""
        if job_id(os.environ) is not None:
            self._before = signal.signal(signal.SIGUSR1, self._note)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Restores the previous signal handler."""
        if self._before is not None:
            signal.signal(signal.SIGUSR1, self._before)
            self._before = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Requeues the job and exits if a rank has received the signal.

        Raises:
            SystemExit: the job is requeued; status 0.
        """
        job = job_id(os.environ)
        if job is None or not trainer.strategy.reduce_boolean_decision(self._asked, all=False):
            return
        self._asked = False
        # Between two rounds: all ranks have the same model, and their private parameters are of the same round.
        path = next_checkpoint(Path(trainer.default_root_dir))
        trainer.save_checkpoint(path)
        # SLURM sends SIGTERM to a requeued job; this one exits by itself, after its loggers.
        ending = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        trainer.strategy.barrier("checkpoint saved")
        requeued = trainer.strategy.broadcast(trainer.is_global_zero and _requeued(job))
        if not requeued:
            signal.signal(signal.SIGTERM, ending)
            _logger.warning("the job could not be requeued and continues; it can be resumed from %s", path)
            return
        for logger in trainer.loggers:
            logger.finalize("finished")
        raise SystemExit(0)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked = True


def job_id(environment: Mapping[str, str]) -> str | None:
    """Number of the SLURM job, ``JOB_TASK`` for an array; None outside of a job."""
    array = environment.get("SLURM_ARRAY_JOB_ID")
    task = environment.get("SLURM_ARRAY_TASK_ID")
    # The job that submits an array may have the number of the array and none of a task.
    if array is not None and task is not None:
        return f"{array}_{task}"
    return environment.get("SLURM_JOB_ID")


def next_checkpoint(folder: Path) -> Path:
    """Path that Lightning will find as the newest checkpoint of a run.

    Lightning takes all digits behind the last ``ckpt_`` of a file's name for its number, also those of a copy
    (``hpc_ckpt_1-v2.ckpt`` has number 12), and loads the file of the largest one.
    """
    digits = [re.sub(r"\D", "", path.name.split("ckpt_")[-1]) for path in folder.glob("*ckpt_*")]
    numbers = [int(number) for number in digits if number]
    return folder / f"hpc_ckpt_{max(numbers, default=0) + 1}.ckpt"


def _requeued(job: str) -> bool:
    try:
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        _logger.warning("scontrol: %s", error)
        return False
    if done.returncode:
        _logger.warning("scontrol: %s", done.stderr.strip())
    return done.returncode == 0
