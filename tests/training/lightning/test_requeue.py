"""A job that is signalled leaves between two rounds, and goes on there."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from fedleak.modules.learners.fncf import FNCF
from fedleak.recordings.recording import Recording
from fedleak.training.lightning.requeue import Requeue, job_id, next_checkpoint
from tests import toys

ROUNDS = 4


class InTheMiddle(Callback):
    """Sends the signal while a round is being worked on."""

    def __init__(self, number: int) -> None:
        self.number = number

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.number:
            os.kill(os.getpid(), signal.SIGUSR1)


@pytest.fixture
def in_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of one process, and an ``scontrol`` that writes down what it was asked; returns where."""
    asked = tmp_path / "asked"
    command = tmp_path / "bin" / "scontrol"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexit $(cat {tmp_path}/status 2>/dev/null || echo 0)\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    return asked


def fit(folder: Path, *callbacks: Callback, ckpt_path: Path | None = None) -> FNCF:
    return toys.train(folder, rounds=ROUNDS, ckpt_path=ckpt_path, more=[*callbacks, Requeue()])


@pytest.mark.integration
def test_it_leaves_after_the_round_and_goes_on_to_the_same_end(tmp_path: Path, in_a_job: Path) -> None:
    whole = fit(tmp_path / "whole")
    with pytest.raises(SystemExit) as left:
        fit(tmp_path / "cut", InTheMiddle(1))
    assert left.value.code == 0
    assert in_a_job.read_text() == "requeue 41\n"
    assert Recording(tmp_path / "cut/deltas").rounds == [0, 1]
    checkpoint = tmp_path / "cut/hpc_ckpt_1.ckpt"
    assert next_checkpoint(tmp_path / "cut").name == "hpc_ckpt_2.ckpt"
    resumed = fit(tmp_path / "cut", ckpt_path=checkpoint)
    assert Recording(tmp_path / "cut/deltas").rounds == list(range(ROUNDS))
    for name, value in whole.public_parameters().items():
        assert torch.equal(value, resumed.public_parameters()[name])
    assert torch.equal(whole.private["user_embedding"], resumed.private["user_embedding"])


@pytest.mark.integration
def test_where_the_queue_refuses_the_training_goes_on(
    tmp_path: Path, in_a_job: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "status").write_text("1")
    fit(tmp_path / "run", InTheMiddle(1))
    assert Recording(tmp_path / "run/deltas").rounds == list(range(ROUNDS))
    assert "could not be requeued" in caplog.text
    assert (tmp_path / "run/hpc_ckpt_1.ckpt").exists()


def test_the_signal_is_given_back_and_left_alone_outside_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    requeue, trainer = Requeue(), Trainer(accelerator="cpu", logger=False, default_root_dir=tmp_path)
    requeue.setup(trainer, LightningModule(), "fit")
    assert signal.getsignal(signal.SIGUSR1) is before
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    requeue.setup(trainer, LightningModule(), "fit")
    assert signal.getsignal(signal.SIGUSR1) is not before
    requeue.teardown(trainer, LightningModule(), "fit")
    assert signal.getsignal(signal.SIGUSR1) is before


def test_a_task_of_an_array_is_called_by_both_numbers() -> None:
    assert job_id({}) is None
    assert job_id({"SLURM_JOB_ID": "9"}) == "9"
    assert job_id({"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}) == "7_2"
    # A number of an array without that of a task does not name a task.
    assert job_id({"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7"}) == "9"


def test_the_next_checkpoint_has_a_larger_number_than_all_others(tmp_path: Path) -> None:
    assert next_checkpoint(tmp_path).name == "hpc_ckpt_1.ckpt"
    for name in ("hpc_ckpt_9.ckpt", "hpc_ckpt_1-v2.ckpt", "hpc_ckpt_last.ckpt"):
        (tmp_path / name).touch()
    assert next_checkpoint(tmp_path).name == "hpc_ckpt_13.ckpt"
