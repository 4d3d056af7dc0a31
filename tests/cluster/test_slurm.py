"""The batch files on a real SLURM of this machine: ``make test-cluster``."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

from fedleak.modules.learners.fncf import FNCF
from fedleak.recordings.recording import Recording
from tests.cluster.slurm import Cluster, cluster, missing, until
from tests.tables.tables import RANKING

pytestmark = pytest.mark.cluster
CHECKOUT = Path(__file__).parents[2]
FILES = "configs/cluster"
SMALL = (
    *("--trainer.accelerator", "cpu", "--trainer.limit_val_batches", "0"),
    *("--data.users", "16", "--data.items", "60", "--data.mean_interactions", "6"),
    *("--data.fewest_interactions", "3", "--data.clients_per_round", "8", "--model.local.epochs", "2"),
)
SYNTHETIC = "configs/train/fncf_synthetic.yaml"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reason = missing()
    if reason is not None:
        pytest.fail(f"no SLURM on this machine: {reason}")
    with cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


def variables(**more: object) -> dict[str, str]:
    """What a person would set at the top of a batch file."""
    return {"PYTHON": sys.executable, "GLOO_SOCKET_IFNAME": "lo", **{name: str(value) for name, value in more.items()}}


def train(slurm: Cluster, run: Path, rounds: int, **more: object) -> str:
    """Submits a training, and returns the job's number."""
    command = (f"{FILES}/train.sbatch", *SMALL, "--trainer.max_steps", str(rounds))
    environment = variables(CONFIG=SYNTHETIC, RUN=run, **more)
    return slurm.submit(f"--output={run}.log", *command, cwd=CHECKOUT, more=environment)


def finished(slurm: Cluster, job: str, log: Path) -> None:
    assert slurm.wait(job) == {"COMPLETED"}, log.read_text()[-3000:]


def journalled(run: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in (run / "deltas").glob("journal*.jsonl"))


def sent(run: Path) -> dict[tuple[int, int], dict[str, torch.Tensor]]:
    """Every client's deltas by round and pseudonym; every hash that the journals name is checked."""
    views = Recording(run / "deltas", verify=True).views()
    return {
        (view.round, pseudonym): {name: value[i] for name, value in view.deltas.items()}
        for view in views
        for i, pseudonym in enumerate(view.pseudonyms.tolist())
    }


def weights(run: Path) -> dict[str, torch.Tensor]:
    newest = max(run.rglob("epoch=*.ckpt"), key=os.path.getmtime)
    restored = FNCF.load_from_checkpoint(newest, map_location="cpu")
    return {**restored.public_parameters(), **restored.private}


def test_a_training_requeued_by_a_signal_ends_as_one_that_nobody_stopped(slurm: Cluster, tmp_path: Path) -> None:
    rounds = 150
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finished(slurm, train(slurm, whole, rounds), tmp_path / "whole.log")

    job = train(slurm, cut, rounds, WANDB_PROJECT="test", WANDB_MODE="offline")
    until(lambda: journalled(cut) > 20, seconds=120, what="the first rounds")
    slurm.call("scancel", "--signal=USR1", job)
    until(lambda: slurm.jobs(job)[0]["Restarts"] == "1", seconds=60, what="the requeue")
    assert (cut / "hpc_ckpt_1.ckpt").exists()
    assert journalled(cut) < journalled(whole)
    # SLURM holds a requeued job back for two minutes.
    until(lambda: slurm.states(job) == {"PENDING"}, seconds=60, what="the job in the queue")
    slurm.call("scontrol", "update", f"JobId={job}", "StartTime=now")
    finished(slurm, job, tmp_path / "cut.log")

    first, second = sent(whole), sent(cut)
    assert len(first) == 8 * rounds
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key][name], second[key][name]) for key in first for name in first[key])
    one, two = weights(whole), weights(cut)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert {path.name for path in (whole / "deltas").glob("journal*")} == {"journal.jsonl", "journal-0001.jsonl"}
    assert {path.name.rsplit("-", 1)[1] for path in (cut / "wandb").glob("offline-run-*")} == {job}


@pytest.mark.parametrize("tasks", [1, 2])
def test_devices_without_srun_are_refused(slurm: Cluster, tmp_path: Path, tasks: int) -> None:
    line = f"{sys.executable} train.py fit --config {SYNTHETIC} --trainer.default_root_dir {tmp_path / 'run'}"
    wrapped = f"--wrap={line} --trainer.accelerator cpu --trainer.devices 2 --trainer.strategy ddp"
    log = tmp_path / "log"
    job = slurm.submit(f"--ntasks-per-node={tasks}", f"--output={log}", wrapped, cwd=CHECKOUT)
    assert slurm.wait(job) == {"FAILED"}
    assert slurm.jobs(job)[0]["ExitCode"] == "2:0"
    assert "fedleak: expected 2 processes, one per device; found a world size of 1. Start it as srun" in log.read_text()
    assert not (tmp_path / "run").exists()


def test_an_array_of_attacks_fills_a_table(slurm: Cluster, tmp_path: Path) -> None:
    table = tmp_path / "table.yaml"
    table.write_text(RANKING)
    out = tmp_path / "out"
    command = ("--array=0-1", f"--output={tmp_path}/%a.log", f"{FILES}/attack_array.sbatch")
    job = slurm.submit(*command, cwd=CHECKOUT, more=variables(TABLE=table, OUT=out))
    finished(slurm, job, tmp_path / "0.log")
    done = {path: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")}
    assert len(done) == 2
    assert not (out / "results.json").exists()

    def reproduce(folder: Path) -> pd.DataFrame:
        line = [sys.executable, "attack.py", "reproduce", str(table), "--jobs", "1", "--out", str(folder)]
        subprocess.run(line, cwd=CHECKOUT, check=True, capture_output=True, timeout=240)
        return pd.read_csv(folder / "scores.csv").drop(columns="seconds")

    together = reproduce(out)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    pd.testing.assert_frame_equal(together, reproduce(tmp_path / "alone"))


def test_a_point_of_a_sweep_takes_every_task_of_its_allocation(slurm: Cluster, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.yaml"
    launch = ["${env}", "bash", f"{FILES}/launch.sh", "fit", "--config", SYNTHETIC, *SMALL]
    root = ["--trainer.max_steps", "2", "--trainer.default_root_dir", str(tmp_path / "sweep")]
    parameters = {"model.init_args.local.learning_rate": {"values": [0.01, 0.1]}}
    content = {"program": "train.py", "method": "grid", "parameters": parameters}
    sweep.write_text(yaml.safe_dump({**content, "command": [*launch, *root, "${args}"]}))
    agent = variables(SWEEP=sweep, AGENT=f"{sys.executable} tests/offline_agent.py")
    command = ("--array=1", "--ntasks-per-node=2", "--cpus-per-task=1", f"--output={tmp_path}/log")
    job = slurm.submit(*command, f"{FILES}/sweep_agents.sbatch", cwd=CHECKOUT, more=agent)
    finished(slurm, job, tmp_path / "log")
    run = tmp_path / "sweep" / "point0"
    assert {path.name for path in (run / "deltas").glob("journal*")} == {"journal.jsonl", "journal-0001.jsonl"}
    assert yaml.safe_load((run / "config.yaml").read_text())["model"]["init_args"]["local"]["learning_rate"] == 0.01
