"""A training that is asked to end does so whatever it is doing, on all its processes, and what it recorded is whole."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from lightning import Callback, LightningModule, Trainer

from fedleak.commands import train
from fedleak.core.seeding import KEY_VARIABLE
from fedleak.recordings.recording import Recording
from fedleak.recordings.stop_report import StopReport
from fedleak.training.lightning.unfinished_training import CHECKPOINT, CONFIG
from fedleak_recorder.journal import read_journal
from tests.own_signals import takes_signals
from tests.places import ROOT

pytestmark = pytest.mark.integration

LIMIT = 120
"""Seconds after which a test gives up; what is tested takes a few."""


def begin(folder: Path, *more: str) -> subprocess.Popen[str]:
    """A training of many rounds, begun and with a round recorded and in a checkpoint, which the next round follows."""
    args = ("--config", "configs/train/fncf_synthetic.yaml", "--data.init_args.users", "40", "--trainer.devices", "1")
    given = ("--trainer.max_steps", "100000", "--trainer.default_root_dir", str(folder), "--trainer.accelerator", "cpu")
    command = [sys.executable, "train.py", "fit", *args, *given, *more]
    process = subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=takes_signals
    )
    until = time.monotonic() + LIMIT
    while recorded(folder) < 2 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    assert process.poll() is None
    return process


def recorded(folder: Path) -> int:
    """Rounds in the journals of a training that still runs."""
    return sum(path.read_text().count('"rounds/') for path in folder.glob("deltas/journal*"))


def ended(group: int) -> bool:
    """Waits until no process of a group runs; whether that comes."""
    until = time.monotonic() + LIMIT
    while alive(group) and time.monotonic() < until:
        time.sleep(0.1)
    return not alive(group)


def alive(group: int) -> list[str]:
    """Processes of a group that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[2] == str(group) and fields[0] != "Z":
            found.append(path.parent.name)
    return found


@pytest.mark.parametrize(
    ("number", "status", "more"),
    [
        (signal.SIGINT, 130, ("--data.init_args.num_workers", "2")),
        (signal.SIGTERM, 143, ("--trainer.devices", "2", "--trainer.strategy", "ddp")),
    ],
    ids=["everybody gets SIGINT, loader workers too", "rank zero of two gets SIGTERM"],
)
def test_it_ends_with_one_line(number: signal.Signals, status: int, more: tuple[str, ...], tmp_path: Path) -> None:
    process = begin(tmp_path, *more)
    try:
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.stderr is not None
        said = process.communicate(timeout=LIMIT)[1]
        assert ended(process.pid)
    finally:
        if alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == status
    last = [line for line in said.replace("\r", "\n").splitlines() if line.startswith("fedleak: ")]
    assert len(last) == 1
    assert last[0].startswith(f"fedleak: stopped by {number.name} after ")
    assert f"recorded in {tmp_path / 'deltas'}" in last[0]
    assert "Traceback" not in said
    recording = Recording(tmp_path / "deltas")
    for number_of_round in recording.rounds:
        assert all(len(view.pseudonyms) for view in recording.views(rounds=[number_of_round]))


def test_a_stopped_training_is_resumed_to_the_recording_of_one_that_nobody_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "5e" * 32)
    process = begin(tmp_path / "stopped")
    process.terminate()
    assert process.wait(LIMIT) == 143
    checkpoint = tmp_path / "stopped/stopped.ckpt"
    rounds = str(torch.load(checkpoint, weights_only=True)["global_step"] + 2)
    config = ("--config", str(tmp_path / "stopped/config.yaml"), "--trainer.max_steps", rounds)
    assert train.run(["fit", *config, "--ckpt_path", str(checkpoint)]) == 0
    assert train.run(["fit", *config, "--trainer.default_root_dir", str(tmp_path / "whole")]) == 0
    assert Recording(tmp_path / "stopped/deltas").closed
    assert not any((tmp_path / "stopped" / name).exists() for name in (CHECKPOINT, CONFIG))
    shards = list((tmp_path / "whole/deltas").glob("*/*.safetensors"))
    assert shards
    for path in shards:
        assert (tmp_path / "stopped/deltas" / path.parent.name / path.name).read_bytes() == path.read_bytes()


def test_processes_end_with_the_one_that_started_them_if_it_is_killed(tmp_path: Path) -> None:
    process = begin(
        tmp_path, "--trainer.devices", "3", "--trainer.strategy", "ddp", "--data.init_args.num_workers", "1"
    )
    try:
        assert len(alive(process.pid)) >= 3
        process.kill()
        process.communicate(timeout=LIMIT)
        assert ended(process.pid)
    finally:
        if alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


def fit(folder: Path, rounds: int) -> int:
    """A small training in this process."""
    words = ("--config", "configs/train/fncf_synthetic.yaml", "--data.init_args.users", "40")
    where = ("--trainer.max_steps", str(rounds), "--trainer.default_root_dir", str(folder))
    return train.run(["fit", *words, *where, "--trainer.accelerator", "cpu"])


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a training of two rounds, as if it had been killed right after them."""
    monkeypatch.setenv(KEY_VARIABLE, "5e" * 32)
    with monkeypatch.context() as before_its_end:
        before_its_end.setattr(StopReport, "teardown", lambda *_, **__: None)
        before_its_end.setattr("fedleak.recordings.stop_report._LEAST_S", 0.0)
        before_its_end.setattr("fedleak.recordings.stop_report._SHARE", 0.0)
        assert fit(tmp_path / "killed", 2) == 0
    return tmp_path / "killed"


def test_the_same_command_after_a_kill_names_the_one_that_goes_on(
    killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = {path: path.read_bytes() for path in (killed / "deltas").glob("*/*.safetensors")}
    capsys.readouterr()
    assert fit(killed, 3) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert {path: path.read_bytes() for path in shards} == shards
    command = shlex.split(said.partition("To resume that training: ")[2].partition(" . To start")[0])
    assert command[:3] == ["fedleak", "train", "fit"]
    assert train.run([*command[2:], "--trainer.max_steps", "3"]) == 0
    assert fit(tmp_path / "whole", 3) == 0
    lines = [read_journal(folder / "deltas/journal.jsonl").lines for folder in (killed, tmp_path / "whole")]
    assert lines[0] == lines[1]  # the hash of every file


def test_a_resumed_training_that_is_stopped_in_its_first_round_names_the_checkpoint_it_went_on_from(
    killed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resumed = ("--config", str(killed / "config.yaml"), "--ckpt_path", str(killed / CHECKPOINT))
    with monkeypatch.context() as stopped:
        stopped.setattr(StopReport, "on_train_batch_start", lambda *_: signal.raise_signal(signal.SIGTERM))
        assert train.run(["fit", *resumed, "--trainer.max_steps", "3"]) == 143
    command = shlex.split(capsys.readouterr().err.splitlines()[-1].partition("Resume with: ")[2])
    assert command == ["fedleak", "train", "fit", *resumed]
    assert train.run(command[2:]) == 0
    assert Recording(killed / "deltas").rounds == [0, 1, 2]


class LateProcess(Callback):
    """Holds up the last process of a training at its end."""

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Waits for longer than the first process takes to exit."""
        if trainer.global_rank == trainer.world_size - 1:
            time.sleep(10)


def test_first_process_waits_at_the_end_until_the_others_have_closed_their_journals(tmp_path: Path) -> None:
    late = [{"class_path": "tests.test_train_signals.LateProcess"}, {"class_path": "DeltaRecorder"}]
    (tmp_path / "late.yaml").write_text(yaml.safe_dump({"trainer": {"callbacks": late}}))
    words = ("--config", "configs/train/fncf_synthetic.yaml", "--config", "configs/trainer/two_processes_cpu.yaml")
    small = ("--config", str(tmp_path / "late.yaml"), "--data.init_args.users", "40", "--trainer.max_steps", "1")
    folder = ("--trainer.default_root_dir", str(tmp_path / "run"))
    command = [sys.executable, "train.py", "fit", *words, *small, *folder]
    subprocess.run(command, cwd=ROOT, timeout=LIMIT, check=True, preexec_fn=takes_signals)
    assert Recording(tmp_path / "run/deltas").closed
