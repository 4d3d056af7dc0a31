"""Jobs of NVFlare's simulator with a component that reads a verdict before each round."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from fedleak.recordings.recording import Recording

ROOT = Path(__file__).resolve().parents[2]


def simulate(folder: Path, *options: str) -> str:
    """Runs the job, and returns what it printed."""
    command = [sys.executable, "-m", "tests.nvflare.watched", str(folder), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=500)
    return (done.stdout + done.stderr).decode()


def started(folder: Path) -> dict[int, int]:
    """Number of clients that got the task, by round."""
    found: dict[int, int] = {}
    for line in (folder / "started.jsonl").read_text().splitlines():
        number = json.loads(line)["round"]
        found[number] = found.get(number, 0) + 1
    return found


def watched(folder: Path, *options: str) -> str:
    """The job with a watch beside it."""
    words = ["attack.py", "watch", str(folder / "deltas"), "--gate", "declared-privacy/findings=0.05"]
    with subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL) as watch:
        try:
            said = simulate(folder, *options)
            assert watch.wait(timeout=300) == 3, said
        finally:
            watch.kill()
    return said


@pytest.mark.integration
def test_fault_ends_a_job_before_the_next_round(tmp_path: Path) -> None:
    said = watched(tmp_path, "--fault", "2", "--rounds", "5")
    assert started(tmp_path) == {0: 8, 1: 8, 2: 8}, said
    assert "findings" in said
    recording = Recording(tmp_path / "deltas")
    assert recording.rounds == [0, 1, 2]
    assert recording.closed


@pytest.mark.integration
def test_job_without_a_verdict_ends_if_it_is_closed(tmp_path: Path) -> None:
    said = simulate(tmp_path, "--rounds", "3", "--wait", "0")
    assert started(tmp_path) == {0: 8}, said
    assert "without a verdict" in said


@pytest.mark.integration
def test_every_leaky_client_is_dropped(tmp_path: Path) -> None:
    """All of them leak, so that nobody is left."""
    said = watched(tmp_path, "--fault", "1", "--rounds", "4", "--on-exceeded", "drop")
    assert started(tmp_path) == {0: 8, 1: 8}, said
    assert "left out" in said
