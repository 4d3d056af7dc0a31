"""Report of a training that a signal stops: what is written, and how to resume."""

import contextlib
import io
import time
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from fedleak.core.errors import InputError
from fedleak.core.io.files import write_whole
from fedleak.core.signals import Stopping
from fedleak.recordings.recording import Recording
from fedleak.training.lightning.unfinished_training import CHECKPOINT, CONFIG, fit_command, resume_command
from fedleak.training.round_recorder import RoundRecorder

_LEAST_S = 1.0
"""Seconds between two writes of the state at least."""
_SHARE = 20
"""Seconds between two writes as a multiple of what one takes: a twentieth of the time is spent on them at most."""


class StopReport(Callback):
    """Stops the training on all its processes on SIGTERM and SIGINT, and keeps what it takes to go on.

    Lightning's Trainer installs handlers that wait for the end of a round, or for other processes. This callback
    restores the command's handlers, which raise `Stopped` at once, and forwards the signals to the processes that
    Lightning started. Rounds recorded by then are complete.

    A round cannot be resumed in its middle, where some clients' private parameters are trained and others are not. So
    the state after a finished round is written to ``stopped.ckpt`` in the run's folder, and its configuration to
    ``stopped.yaml``: after the first round, and then at most once in a second, and so rarely that it takes a twentieth
    of the time. Rounds after it are trained and recorded again. A training that no signal announces its end to, because
    it is killed or the machine fails, goes on from there too. Both files are removed when the training has ended by
    itself, if it has another checkpoint.
    """

    def __init__(self, stopping: Stopping) -> None:
        self.stopping = stopping
        self._has_written = False
        """Whether this training has written its state."""
        self._next = 0.0
        """Time of the next one."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Registers the report and the processes to forward signals to."""
        self.stopping.last_words = lambda name: self._last_words(trainer, name) if trainer.is_global_zero else ""
        self.stopping.forward = lambda number: _forward(trainer, number)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restores the signal handlers."""
        self.stopping.take()

    on_sanity_check_start = on_validation_start = on_train_start

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keeps the state; on all processes together, because private parameters are gathered."""
        if not trainer.strategy.reduce_boolean_decision(time.monotonic() >= self._next, all=False):
            return
        # The state is taken on all processes, and written by one.
        start = time.monotonic()
        content = trainer._checkpoint_connector.dump_checkpoint()  # what `Trainer.save_checkpoint` writes
        if trainer.is_global_zero:
            self._keep(Path(trainer.default_root_dir), content)
        end = time.monotonic()
        self._next = end + max(_LEAST_S, _SHARE * (end - start))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Waits for all processes, and removes the state of a training whose last checkpoint is on the disk.

        The others end with the first one, also where they still close their journals.
        """
        trainer.strategy.barrier("files of all processes written")
        if self._has_written and newest_checkpoint(trainer) is not None:
            for name in (CHECKPOINT, CONFIG):
                (Path(trainer.default_root_dir) / name).unlink(missing_ok=True)
            self._has_written = False

    def _keep(self, folder: Path, content: dict[str, Any]) -> None:
        buffer = io.BytesIO()
        torch.save(content, buffer)
        with contextlib.suppress(OSError):  # a full disk: what is there already must do
            if not self._has_written:
                write_whole(folder / CONFIG, (folder / "config.yaml").read_bytes())
            write_whole(folder / CHECKPOINT, buffer.getvalue())
            self._has_written = True

    def _last_words(self, trainer: Trainer, name: str) -> str:
        words = [f"stopped by {name} after {trainer.global_step} rounds."]
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, RoundRecorder):
                folder = callback.folder(trainer)
                try:
                    words.append(f"{len(Recording(folder, running=True).rounds)} rounds are recorded in {folder}.")
                except (InputError, OSError):
                    words.append("No round is recorded.")
        resume = self._resume_command(trainer)
        if resume:
            words.append(f"Resume with: {resume}")
        else:
            words.append("There is no checkpoint to resume from.")
        return " ".join(words)

    def _resume_command(self, trainer: Trainer) -> str:
        """The command that goes on; empty if there is no checkpoint."""
        folder = Path(trainer.default_root_dir)
        if self._has_written:
            return resume_command(folder)
        # Before the end of the first round, or with a full disk: what the training itself went on from.
        checkpoint = newest_checkpoint(trainer) or trainer.ckpt_path
        if not checkpoint:
            return ""
        return fit_command(folder / "config.yaml", Path(checkpoint))


def newest_checkpoint(trainer: Trainer) -> Path | None:
    """Newest existing checkpoint of a training."""
    paths: list[str] = []
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, ModelCheckpoint):
            paths += [callback.last_model_path, callback.best_model_path, *callback.best_k_models]
    present = [Path(path) for path in paths if path and Path(path).is_file()]
    return max(present, key=lambda path: path.stat().st_mtime, default=None)


def _forward(trainer: Trainer, number: int) -> None:
    """Forwards a signal to the processes that Lightning started, whose end it must not treat as a crash."""
    processes = getattr(trainer.strategy.launcher, "procs", [])
    for process in list(processes):
        process.send_signal(number)
    # Lightning looks after the processes of this list: one that ends is a crash to it.
    processes.clear()
