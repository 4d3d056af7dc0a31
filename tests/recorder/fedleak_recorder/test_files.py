"""Whole files: what killed processes left is removed, and nothing else."""

import os
import subprocess
from pathlib import Path

from fedleak_recorder.files import write_whole


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
