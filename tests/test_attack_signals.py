"""attack.py ends on SIGTERM and SIGINT, also inside Lightning and in workers, and finished cells are kept."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.own_signals import takes_signals
from tests.places import ROOT

pytestmark = pytest.mark.integration

TABLE = f"""
train: {ROOT / "configs" / "train" / "fncf_synthetic.yaml"}
metrics: [auc]
set: {{data.clients_per_round: 2, trainer.max_steps: 1}}
seeds: 60
attacks: {{recommendation/raifle: {{max_iter: 2}}}}
"""
"""More cells than fit into any patience; nearly all the time is spent inside Lightning's Trainer."""


def descendants(process: int) -> list[int]:
    """Processes that a process started, and theirs."""
    children = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        children += [int(child) for child in task.read_text().split()]
    return [one for child in children for one in (child, *descendants(child))]


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(what: str, process: "subprocess.Popen[str]", condition: Iterator[bool]) -> None:
    end = time.monotonic() + 240
    for met in condition:
        if met:
            return
        assert process.poll() is None, f"ended before {what}"
        assert time.monotonic() < end, f"never {what}"
        time.sleep(0.05)


@pytest.mark.parametrize("begun", [False, True], ids=["workers still import", "a cell was finished"])
def test_workers_end_with_a_parent_that_is_killed_alone(begun: bool, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TABLE)
    out = tmp_path / "out"
    command = [sys.executable, "attack.py", "reproduce", str(tmp_path / "t.yaml"), "--out", str(out), "--jobs", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=said, stderr=said, text=True, preexec_fn=takes_signals
        )
    started: list[int] = []
    try:
        until("workers were started", process, (len(descendants(process.pid)) > 2 for _ in iter(int, 1)))
        if begun:
            until("a cell was finished", process, (any((out / "cells").glob("*.json")) for _ in iter(int, 1)))
        started = descendants(process.pid)
    finally:
        process.kill()
    process.wait(60)
    end = time.monotonic() + 90
    while any(runs(one) for one in started) and time.monotonic() < end:
        time.sleep(0.1)
    left = [one for one in started if runs(one)]
    for one in left:
        os.kill(one, signal.SIGKILL)
    assert left == []
    assert begun or not list((out / "cells").glob("*.json"))  # a worker that was still importing trains nothing


@pytest.mark.parametrize(("number", "status", "jobs"), [(signal.SIGTERM, 143, 1), (signal.SIGINT, 130, 2)])
def test_a_table_ends_and_keeps_its_finished_cells(
    number: signal.Signals, status: int, jobs: int, tmp_path: Path
) -> None:
    (tmp_path / "t.yaml").write_text(TABLE)
    command = [sys.executable, "attack.py", "reproduce", str(tmp_path / "t.yaml"), "--out", str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [*command, "--jobs", str(jobs)],
            cwd=ROOT,
            env=environment,
            stdout=said,
            stderr=said,
            text=True,
            preexec_fn=takes_signals,
        )
    finished = (any((tmp_path / "out/cells").glob("*.json")) for _ in iter(int, 1))
    try:
        until("a cell was finished", process, finished)
        started = descendants(process.pid)
        process.send_signal(number)
        assert process.wait(60) == status
    finally:
        process.kill()
    assert len(started) >= (jobs if jobs > 1 else 0)
    lines = (tmp_path / "said").read_text().splitlines()
    assert sum(f"stopped by {number.name}" in line for line in lines) == 1
    assert not any("Traceback" in line for line in lines)
    assert list((tmp_path / "out/cells").glob("*.json"))
    assert not (tmp_path / "out/results.json").exists()
    end = time.monotonic() + 60
    while any(runs(one) for one in started) and time.monotonic() < end:
        time.sleep(0.1)
    assert [one for one in started if runs(one)] == []
