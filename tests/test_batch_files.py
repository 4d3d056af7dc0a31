"""The batch files without SLURM or Kubernetes: they are shell, and what they start is what they say.

`tests/cluster` submits those of SLURM.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedleak.commands.audit import COMMAND
from fedleak.commands.shared.parser import command_parser
from fedleak.evaluation.part import place_of
from tests.places import ROOT

FOLDER = ROOT / "configs/cluster"
FILES = sorted(FOLDER.iterdir())
SHELL = [path for path in FILES if path.suffix in (".sbatch", ".sh")]
KUBERNETES = [path for path in FILES if path.suffix == ".yaml"]


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
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


def printing(folder: Path, name: str) -> None:
    """A program that prints its arguments, one a line."""
    program = folder / name
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)


@pytest.mark.parametrize(("task", "part"), [(5, "0/3"), (7, "2/3")])
def test_a_task_of_an_array_audits_its_part(tmp_path: Path, task: int, part: str) -> None:
    printing(tmp_path, "python")
    job = {
        "SLURM_ARRAY_TASK_ID": task,
        "SLURM_ARRAY_TASK_MIN": 5,
        "SLURM_ARRAY_TASK_COUNT": 3,
        "SLURM_CPUS_PER_TASK": 2,
    }
    environment = {name: str(value) for name, value in job.items()}
    environment |= {"PATH": os.environ["PATH"], "PYTHON": str(tmp_path / "python"), "RECORDING": "runs/mine/deltas"}
    command = ["bash", "configs/cluster/audit_array.sbatch", "--victims", "9"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    program, name, *options = done.stdout.split()
    assert (program, name) == ("attack.py", "audit")
    given = vars(command_parser("audit", COMMAND).parse_args(options))
    assert given == {"recording": "runs/mine/deltas", "out": "runs/mine", "jobs": 2, "part": part, "victims": 9}


def container(path: Path) -> dict[str, Any]:
    """The one container of a job's pods."""
    job = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    (only,) = job["spec"]["template"]["spec"]["containers"]
    return dict(only)


def options_of_pod(path: Path, folder: Path, **more: str) -> dict[str, Any]:
    """What a pod's shell hands to ``fedleak audit``."""
    printing(folder, "fedleak")
    pod = container(path)
    variables = {entry["name"]: entry["value"] for entry in pod["env"]}
    assert all(isinstance(value, str) for value in variables.values())  # Kubernetes refuses numbers
    environment = {**variables, "PATH": f"{folder}:{os.environ['PATH']}", **more}
    words = [*pod["command"], *pod["args"]]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    name, *options = done.stdout.split()
    assert name == "audit"
    return vars(command_parser("audit", COMMAND).parse_args(options))


def test_the_pods_of_an_indexed_job_are_the_parts_of_an_audit(tmp_path: Path) -> None:
    path = FOLDER / "audit_job.yaml"
    job = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    assert job["completionMode"] == "Indexed"
    places = []
    for index in range(job["completions"]):
        given = options_of_pod(path, tmp_path, JOB_COMPLETION_INDEX=str(index))
        places.append(place_of(given["part"]))
    assert places == [(index, job["completions"]) for index in range(job["completions"])]


def test_the_report_is_of_the_same_audit_on_the_same_volume(tmp_path: Path) -> None:
    parts, report = FOLDER / "audit_job.yaml", FOLDER / "audit_report_job.yaml"
    of_a_part = options_of_pod(parts, tmp_path, JOB_COMPLETION_INDEX="3")
    assert of_a_part.pop("part") == "3/8"
    assert options_of_pod(report, tmp_path) == of_a_part
    for name in ("image", "volumeMounts", "resources"):
        assert container(parts)[name] == container(report)[name]


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_pods_run_as_the_account_of_the_image(path: Path) -> None:
    account = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["template"]["spec"]["securityContext"]
    image = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    assert account["runAsNonRoot"] is True
    assert f"USER {account['runAsUser']}\n" in image


def test_the_image_is_built_from_all_that_the_package_needs() -> None:
    lines = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    links = {link.readlink().name for link in (ROOT / "fedleak").iterdir() if link.is_symlink()}
    assert links | {"fedleak", "recorder", "guard", "requirements", "pyproject.toml", "README.md", "LICENSE"} <= sent
    assert all((ROOT / name).exists() for name in sent)
    image = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^FROM python:3\.1[1-3]-slim$", image, re.MULTILINE)
    assert (ROOT / "requirements/fedleak.lock").is_file()
    assert "--require-hashes -r requirements/fedleak.lock" in image
