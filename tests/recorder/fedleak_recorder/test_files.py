"""Whole files: what killed processes left is removed, and nothing else."""

import os
import subprocess
from pathlib import Path

import pytest

from fedleak.core.signals import Stopped
from fedleak_recorder.files import write_once, write_whole


def test_a_signal_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(_: int) -> None:
        raise Stopped(15)

    monkeypatch.setattr(os, "fsync", stopped)
    with pytest.raises(Stopped):
        write_once(tmp_path / "a", b"content")
    assert not list(tmp_path.iterdir())


def test_error_after_the_file_is_whole_is_raised_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Path) -> None:
        raise OSError("no such disk")

    monkeypatch.setattr("fedleak_recorder.files.flush_folder", failing)
    with pytest.raises(OSError, match="disk"):
        write_once(tmp_path / "a", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_process_left_of_a_file_is_removed_with_its_next_writing(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f".results.json.{ended.pid}.tmp"
    kept = [
        tmp_path / name for name in (f".results.json.{os.getppid()}.tmp", ".results.json.tmp", ".results.json.a.tmp")
    ]
    kept.append(tmp_path / f".scores.csv.{ended.pid}.tmp")
    for path in (left, *kept):
        path.write_bytes(b"half")
    write_whole(tmp_path / "results.json", b"{}")
    assert not left.exists()
    assert all(path.exists() for path in kept)
    assert (tmp_path / "results.json").read_bytes() == b"{}"


@pytest.mark.integration
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc, which tells a zombie from what runs")
def test_what_a_process_left_that_nobody_has_waited_for_is_removed(tmp_path: Path) -> None:
    """In a container, nobody may ever wait for a process whose parent was killed."""
    ended = subprocess.Popen(["true"])
    running = subprocess.Popen(["sleep", "60"])
    try:
        until_a_zombie(ended.pid)
        for process in (ended, running):
            (tmp_path / f".a.{process.pid}.tmp").touch()
        write_whole(tmp_path / "a", b"content")
        assert {path.name for path in tmp_path.iterdir()} == {"a", f".a.{running.pid}.tmp"}
    finally:
        running.kill()
        running.wait()
        ended.wait()


def until_a_zombie(process: int) -> None:
    """Waits until a process has ended, and does not ask for its status, which would remove it."""
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
