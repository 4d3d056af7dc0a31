"""What a training that is stopped by a signal has left, and how to go on."""

from pathlib import Path

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from callbacks.delta_recorder import DeltaRecorder
from datamodules.recordings.recording import Recording
from protocol.errors import InputError
from signals import Stopping


class StopReport(Callback):
    """Lets SIGTERM and SIGINT end the training on all its processes, and says what is written.

    Lightning's Trainer takes SIGTERM when it begins, to note it until the end of a round, and between processes to wait
    for one another inside the handler. Here the signals are taken back, passed on to the processes that Lightning
    started, and raise `Stopped` wherever the training is. What was recorded by then is whole.

    Args:
        stopping: what the command does when it is asked to end.
    """

    def __init__(self, stopping: Stopping) -> None:
        self.stopping = stopping

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """From here on there is something to report."""
        self.stopping.last_words = lambda name: _last_words(trainer, name) if trainer.is_global_zero else ""
        self.stopping.forward = lambda number: _forward(trainer, number)

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Takes the signals back."""
        self.stopping.take()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Takes the signals back."""
        self.stopping.take()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Takes the signals back, where nothing is trained."""
        self.stopping.take()


def newest_checkpoint(trainer: Trainer) -> Path | None:
    """The last checkpoint that a training wrote and that is still there."""
    named = [
        path
        for callback in trainer.checkpoint_callbacks
        if isinstance(callback, ModelCheckpoint)
        for path in (callback.last_model_path, callback.best_model_path, *callback.best_k_models)
    ]
    present = [Path(path) for path in named if path and Path(path).is_file()]
    return max(present, key=lambda path: path.stat().st_mtime, default=None)


def _last_words(trainer: Trainer, name: str) -> str:
    words = [f"stopped by {name} after {trainer.global_step} rounds.", *_recorded(trainer)]
    checkpoint, config = newest_checkpoint(trainer), Path(trainer.default_root_dir) / "config.yaml"
    if checkpoint is None:
        words.append("There is no checkpoint to go on from.")
    else:
        words.append(f"Go on with: python train.py fit --config {config} --ckpt_path {checkpoint}")
    return " ".join(words)


def _recorded(trainer: Trainer) -> list[str]:
    said = []
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, DeltaRecorder):
            folder = callback.folder(trainer)
            try:
                said.append(f"{len(Recording(folder).rounds)} rounds are recorded in {folder}.")
            except (InputError, OSError):
                said.append("No round is recorded.")
    return said


def _forward(trainer: Trainer, number: int) -> None:
    """To the processes that Lightning started; it would take their end for a crash, and kill this process."""
    started = getattr(trainer.strategy.launcher, "procs", [])
    for process in list(started):
        process.send_signal(number)
    started.clear()
