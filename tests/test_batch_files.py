"""The batch files without SLURM: they are shell, and the launcher starts what it says. `tests/cluster` submits them."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.places import ROOT

FILES = sorted((ROOT / "configs/cluster").iterdir())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_is_shell(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".sbatch"], ids=lambda path: path.name)
def test_slurm_reads_every_one_of_its_lines(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    directives = [i for i, line in enumerate(lines) if line.startswith("#SBATCH ")]
    assert len(directives) > 5
    assert max(directives) < first, "SLURM stops reading at the first command"
    assert any(re.match(r"##SBATCH --gpus", line) for line in lines)


def launched(tmp_path: Path, *arguments: str, **environment: str) -> list[str]:
    """What the launcher would run: the words of its last command."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nprintf "srun\\n"; printf "%s\\n" "$@"\n')
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "python\\n"; printf "%s\\n" "$@"\n')
    for program in (srun, python):
        program.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    clean |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": "python", **environment}
    command = ["bash", "configs/cluster/launch.sh", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_outside_of_a_job_it_is_one_process(tmp_path: Path) -> None:
    assert launched(tmp_path, "fit", "--x", "1") == ["python", "train.py", "fit", "--x", "1"]


def test_in_a_job_there_is_a_process_for_every_task(tmp_path: Path) -> None:
    job = {"SLURM_JOB_ID": "1", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NUM_NODES": "3"}
    words = launched(tmp_path, "fit", **job)
    assert words[:4] == ["srun", "python", "train.py", "fit"]
    assert words[4:] == ["--trainer.devices", "2", "--trainer.num_nodes", "3", "--trainer.strategy", "ddp"]
    alone = launched(tmp_path, "fit", **{**job, "SLURM_NTASKS_PER_NODE": "1", "SLURM_JOB_NUM_NODES": "1"})
    assert alone[4:] == ["--trainer.devices", "1", "--trainer.num_nodes", "1"]


def test_devices_that_somebody_asks_for_are_not_overruled(tmp_path: Path) -> None:
    asked = launched(tmp_path, "fit", "--trainer.devices=2", SLURM_JOB_ID="1", SLURM_NTASKS_PER_NODE="1")
    assert asked == ["srun", "python", "train.py", "fit", "--trainer.devices=2"]
