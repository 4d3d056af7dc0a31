"""The batch files and the engine submitit on a real SLURM of this machine: ``make test-cluster``."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

from fedleak.core.errors import InputError
from fedleak.evaluation.engines.submitit import Submitit
from fedleak.modules.learners.fncf import FNCF
from fedleak.recordings.recording import Recording
from tests.cluster.slurm import Cluster, cluster, missing, until
from tests.engine_toys import audited
from tests.engine_work import interrupted_once, killed
from tests.tables.tables import RANKING
from tests.toys import train as trained

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
        subprocess.run(line, cwd=CHECKOUT, check=True, capture_output=True, timeout=600)
        return pd.read_csv(folder / "scores.csv").drop(columns="seconds")

    together = reproduce(out)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    pd.testing.assert_frame_equal(together, reproduce(tmp_path / "alone"))


def test_an_array_of_audits_shares_its_estimates(slurm: Cluster, tmp_path: Path) -> None:
    trained(tmp_path, rounds=2, users=8, items=40)
    options = ("--only", "direction,row-norm")

    def audit(folder: Path) -> str:
        line = [sys.executable, "attack.py", "audit", str(tmp_path / "deltas"), "--out", str(folder), *options]
        return subprocess.run(line, cwd=CHECKOUT, check=True, capture_output=True, text=True, timeout=600).stderr

    out = tmp_path / "out"
    command = ("--array=0-1", f"--output={tmp_path}/%a.log", f"{FILES}/audit_array.sbatch", *options)
    job = slurm.submit(*command, cwd=CHECKOUT, more=variables(RECORDING=tmp_path / "deltas", OUT=out))
    finished(slurm, job, tmp_path / "0.log")
    assert list((out / "unfinished").glob("*.estimate"))
    assert not (out / "results.json").exists()
    assert "estimates were read back" in audit(out)
    audit(tmp_path / "alone")
    pd.testing.assert_frame_equal(scores(out), scores(tmp_path / "alone"))


def scores(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "scores.csv").drop(columns="seconds")


@pytest.fixture
def here(slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster for commands of this process."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm.environment[name])
    return slurm


@pytest.mark.usefixtures("here")
def test_an_audit_on_the_engine_has_the_scores_of_one_process(tmp_path: Path) -> None:
    trained(tmp_path, rounds=2, users=20, items=40)
    engine = Submitit(folder=tmp_path / "engine", jobs=2, partition="test", minutes=10)
    alone = audited(tmp_path / "deltas", None)
    assert len(alone) > 0
    assert audited(tmp_path / "deltas", engine).equals(alone)
    assert not list(engine.folder.glob("*.pkl"))


def killed_after_its_first_file(command: list[str], folder: Path, pattern: str) -> None:
    """Starts a command, and kills it when the first of its files is there."""
    process = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: len(list(folder.glob(pattern))) > 0, seconds=600, what="the first file")
    finally:
        process.kill()
        process.wait()


def test_an_audit_on_the_engine_ends_right_after_its_submitter_was_killed(here: Cluster, tmp_path: Path) -> None:
    trained(tmp_path, rounds=4, users=20, items=40)

    def command(out: Path, *options: str) -> list[str]:
        words = [str(tmp_path / "deltas"), "--only", "direction,row-norm,matched-filter", "--out", str(out)]
        return [sys.executable, "attack.py", "audit", *words, *options]

    out = tmp_path / "out"
    submitted = command(out, "--engine", "submitit", "--engine.partition", "test", "--engine.minutes", "10")
    killed_after_its_first_file([*submitted, "--jobs", "1"], out / "unfinished", "*.estimate")
    second = subprocess.run(
        [*submitted, "--jobs", "2"], cwd=CHECKOUT, check=True, capture_output=True, text=True, timeout=600
    )
    assert "estimates were read back" in second.stderr
    assert not here.call("squeue", "--noheader", "--format=%j").strip()
    subprocess.run(command(tmp_path / "alone"), cwd=CHECKOUT, check=True, capture_output=True, timeout=600)
    pd.testing.assert_frame_equal(scores(out), scores(tmp_path / "alone"), check_exact=True)


@pytest.mark.usefixtures("here")
def test_a_job_of_the_engine_that_is_lost_is_submitted_again(tmp_path: Path) -> None:
    engine = Submitit(folder=tmp_path / "engine", jobs=2, minutes=10, retries=1)
    work = [(tmp_path / "mark", int(signal.SIGKILL)), (tmp_path / "mark", int(signal.SIGKILL))]
    assert list(engine.run(interrupted_once, work)) == ["done in a second run"] * 2
    with pytest.raises(InputError, match="found 2 jobs that ended without one: "):
        list(engine.run(killed, [1]))


def test_a_job_of_the_engine_is_requeued_before_its_time_limit(here: Cluster, tmp_path: Path) -> None:
    """SIGUSR2 is what SLURM sends then."""
    engine = Submitit(folder=tmp_path / "engine", jobs=1, minutes=10)
    results = engine.run(interrupted_once, [(tmp_path / "mark", int(signal.SIGUSR2))])
    asked = threading.Thread(target=start_requeued, args=(here, engine.job_name), daemon=True)
    asked.start()
    assert list(results) == ["done in a second run"]
    asked.join()


def start_requeued(slurm: Cluster, name: str) -> None:
    """SLURM holds a requeued job back for two minutes."""

    def requeued() -> list[str]:
        words = ("squeue", "--noheader", f"--name={name}", "--states=PENDING", "--format=%i %r")
        lines = [line.split() for line in slurm.call(*words).splitlines()]
        return [job for job, reason in lines if reason == "BeginTime"]

    until(requeued, seconds=600, what="the requeue")
    slurm.call("scontrol", "update", f"JobId={requeued()[0]}", "StartTime=now")


def test_a_table_on_the_engine_ends_right_after_its_submitter_was_killed(here: Cluster, tmp_path: Path) -> None:
    table = tmp_path / "table.yaml"
    table.write_text(RANKING)

    def command(out: Path, *options: str) -> list[str]:
        return [sys.executable, "attack.py", "reproduce", str(table), "--out", str(out), *options]

    out = tmp_path / "out"
    submitted = command(out, "--engine", "submitit", "--engine.partition", "test", "--engine.minutes", "10")
    cells = out / "cells"
    killed_after_its_first_file([*submitted, "--jobs", "1"], cells, "*.json")
    before = {path: path.stat().st_mtime_ns for path in cells.glob("*.json")}

    subprocess.run([*submitted, "--jobs", "2"], cwd=CHECKOUT, check=True, capture_output=True, timeout=600)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not here.call("squeue", "--noheader", "--format=%j").strip()
    subprocess.run(
        command(tmp_path / "alone", "--jobs", "1"), cwd=CHECKOUT, check=True, capture_output=True, timeout=600
    )
    pd.testing.assert_frame_equal(scores(out), scores(tmp_path / "alone"), check_exact=True)


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
