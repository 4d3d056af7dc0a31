"""Submitit's jobs on this machine: the results of one process, retries, and what a killed submitter leaves."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fedleak.core.errors import InputError
from fedleak.evaluation.engines.processes import Processes
from fedleak.evaluation.engines.submitit import Submitit
from fedleak_recorder.format import only_writer
from tests.engine_toys import audited
from tests.engine_work import doubled, interrupted_once, killed, refused, where, written
from tests.own_signals import takes_signals
from tests.places import ROOT
from tests.toys import train

SECONDS = 600
"""A test fails after so long; jobs load torch first."""
SUBMITTER = """
import sys
from pathlib import Path
from fedleak.core.signals import Stopped, ends_on_signals
from fedleak.evaluation.engines.submitit import Submitit
from tests.engine_work import written

folder = Path(sys.argv[1])
engine = Submitit(cluster="local", jobs=2, folder=folder / "engine")
try:
    with ends_on_signals():
        print(list(engine.run(written, [(folder, number) for number in range(3)])))
except Stopped as stopped:
    sys.exit(stopped.status)
"""


def local(tmp_path: Path, **options: object) -> Submitit:
    return Submitit(**{"cluster": "local", "jobs": 2, "folder": tmp_path / "engine", **options})  # type: ignore[arg-type]


@pytest.mark.integration
def test_results_are_in_order_and_nothing_private_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    engine = local(tmp_path)
    results = list(engine.run(where, [1, 2, 3]))
    assert len({process for process, _, _ in results} - {os.getpid()}) == 3
    assert {(folder, umask) for _, folder, umask in results} == {(str(tmp_path), 0o077)}
    assert engine.folder.stat().st_mode & 0o777 == 0o700
    left = {path.suffix for path in engine.folder.iterdir()} - {""}
    assert left == {".out", ".err"}  # logs, without arguments and results
    assert list(engine.run(doubled, [])) == []


@pytest.mark.integration
def test_an_audit_has_the_scores_of_one_process_bit_for_bit(tmp_path: Path) -> None:
    train(tmp_path, rounds=2, users=8, items=40)
    alone = audited(tmp_path / "deltas", None)
    assert len(alone) > 0
    for engine in (Processes(jobs=2), local(tmp_path)):
        assert audited(tmp_path / "deltas", engine).equals(alone)


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2])
def test_a_job_that_is_lost_or_requeued_is_run_again(tmp_path: Path, number: int) -> None:
    """SIGUSR2 announces the end of the time limit: submitit requeues the job."""
    work = [(tmp_path / "mark", number)]
    assert list(local(tmp_path, retries=1).run(interrupted_once, work)) == ["done in a second run"]
    logs = list((tmp_path / "engine").glob("*.out"))
    assert len(logs) == (2 if number == signal.SIGKILL else 1)


@pytest.mark.integration
def test_a_job_that_is_lost_too_often_is_one_message_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found 2 jobs that ended without one: about to be lost. See .*_0_log\.err"):
        list(local(tmp_path, retries=1).run(killed, [1]))


@pytest.mark.integration
def test_what_a_part_refuses_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a number but 2; found 2\. Give 3\."):
        list(local(tmp_path).run(refused, [2]))
    assert len(list((tmp_path / "engine").glob("*.out"))) == 1


@pytest.fixture
def submitter(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A submitter of three parts, of which the first has ended and the second one runs."""
    process = started(tmp_path)
    try:
        until(lambda: (tmp_path / "0.txt").exists() and (tmp_path / "1.pid").exists())
        yield process
    finally:
        process.kill()
        process.communicate()


def started(folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SUBMITTER, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=takes_signals)


def until(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def runs(process: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.integration
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_submitter_that_ends_takes_its_jobs_with_it_and_the_next_one_ends_right(
    tmp_path: Path, submitter: "subprocess.Popen[str]", number: int, status: int
) -> None:
    job = int((tmp_path / "1.pid").read_text())
    submitter.send_signal(number)
    assert submitter.wait(SECONDS) == status
    until(lambda: not runs(job))

    (tmp_path / "allowed").touch()
    before = (tmp_path / "0.txt").stat().st_mtime_ns
    after, _ = started(tmp_path).communicate(timeout=SECONDS)
    assert after == "[0, 2, 4]\n"
    assert (tmp_path / "0.txt").stat().st_mtime_ns == before
    assert not list((tmp_path / "engine").glob("*.pkl"))
    assert not list(tmp_path.glob("*.pid.*"))


def test_two_submitters_for_one_folder_are_refused(tmp_path: Path) -> None:
    engine = local(tmp_path)
    (tmp_path / "engine").mkdir()
    with only_writer(engine.folder), pytest.raises(InputError, match="a folder that no other process writes to"):
        list(engine.run(written, [(tmp_path, 0)]))


def test_a_folder_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "engine").symlink_to(tmp_path / "theirs")
    with pytest.raises(InputError, match=r"expected .*engine as a folder of this account; found one of another, or a"):
        list(local(tmp_path).run(doubled, [1]))


def test_without_slurm_it_says_where_to_start_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        InputError,
        match=r"found no sbatch, srun, squeue, scancel\. Start it where jobs are submitted, or give --engine.cluster",
    ):
        list(Submitit(folder=tmp_path / "engine").run(doubled, [1]))


def test_slurm_gets_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that say what they get stand for SLURM's; `tests/cluster` has a real one."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sbatch").write_text(f'#!/bin/sh\ncp "$1" {tmp_path}/submitted\necho "no partition long" >&2\nexit 1\n')
    for name in ("srun", "scancel", "squeue"):
        (programs / name).write_text("#!/bin/sh\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    engine = Submitit(
        folder=tmp_path / "engine",
        jobs=3,
        partition="long",
        minutes=30,
        cpus=2,
        memory_gb=1.5,
        gpus=1,
        sbatch={"qos": "low"},
    )
    with pytest.raises(InputError, match=r"expected SLURM to take a job; found no partition long\. Correct --engine"):
        list(engine.run(doubled, range(5)))
    lines = (tmp_path / "submitted").read_text().splitlines()
    options = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    expected = {"array=0-4%3", "partition=long", "time=30", "cpus-per-task=2", "mem=1536MB", "gpus-per-node=1"}
    assert expected | {"qos=low", "requeue", f"job-name={engine.job_name}", "signal=USR2@90"} <= options
    command = next(line for line in lines if line.startswith("srun"))
    assert " --cpus-per-task=2 env " in command
    assert " OMP_NUM_THREADS=2 " in command
