"""What the pages in docs say is what the code does."""

import json
import os
import re
import runpy
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors import safe_open

from fedleak.commands import program
from fedleak.commands.audit import audit
from fedleak.commands.convert import convert, convert_dump
from fedleak.commands.export import export
from fedleak.commands.shared.parser import parsed
from fedleak.core.seeding import KEY_VARIABLE
from fedleak.evaluation.gate import FAILED
from fedleak.recordings.named_algorithm import learner_from, network_of
from fedleak.recordings.recording import Recording
from fedleak_recorder.format import FORMAT, Manifest, read_manifest
from fedleak_recorder.shape_check import check_shapes
from tests.foreign_toys import write_dump
from tests.places import ROOT, copy_checkout

PAGE = (ROOT / "docs/reference/recording-format.md").read_text(encoding="utf-8")
CI = ROOT / "docs/audit/ci-example.yml"


def block(language: str) -> str:
    """The page's first block of a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_example_manifest_is_read_and_has_every_key(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(block("json"))
    manifest = read_manifest(tmp_path)
    content = json.loads(block("json"))
    assert content.keys() == set(Manifest.__dataclass_fields__)
    assert manifest.format == FORMAT
    assert f"## The folder, format {FORMAT}" in PAGE
    table = PAGE.split("| key | what |")[1].split("Tensors of a shard")[0]
    assert set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines() if "|" in line))) == (
        content.keys()
    )


def test_a_recording_has_the_tensors_that_the_page_lists(tmp_path: Path) -> None:
    convert_dump(write_dump(tmp_path / "dump"), tmp_path / "out", progress=False)
    with safe_open(tmp_path / "out/rounds/000003-0000.safetensors", "pt") as shard:
        kinds = {re.sub("/.*", "/NAME", name) for name in shard.keys()}  # noqa: SIM118
    assert kinds == {"clients", "counts", "deltas/NAME", "model/NAME"}
    assert all(f"| `{kind}` |" in PAGE for kind in kinds)


def example_dump(folder: Path) -> Path:
    """The files that the page's manifest names, filled with small numbers."""
    content: dict[str, Any] = yaml.safe_load(block("yaml"))
    draws = np.random.default_rng(0)

    def write(name: str, clients: int | None = None) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lead = () if clients is None else (clients,)
        arrays: dict[str, Any] = {
            n: draws.normal(0, 0.1, (*lead, *s)).astype("float32") for n, s in content["parameters"].items()
        }
        np.savez(path, **arrays)

    for one in content["rounds"]:
        write(one["model"])
        if "file" in one:
            write(one["file"], len(one["clients"]))
        for client in one["clients"]:
            if "file" in client:
                write(client["file"])
    np.savez(folder / "auxiliary.npz", images=np.zeros((10, 1, 28, 28), np.uint8), labels=np.arange(10))
    (folder / "manifest.yaml").write_text(block("yaml"))
    return folder / "manifest.yaml"


def test_the_example_dump_is_converted(tmp_path: Path) -> None:
    assert convert_dump(example_dump(tmp_path), tmp_path / "out", progress=False) == 2
    recording = Recording(tmp_path / "out")
    assert recording.rounds == [1, 2]
    assert len(recording.pseudonyms()) == 2
    learner = learner_from(recording.manifest.learner)
    assert learner is not None
    shapes = {name: value["shape"] for name, value in recording.manifest.parameters.items()}
    check_shapes(network_of(learner, {}), shapes, where="the page")
    view = next(recording.views(rounds=[1]))
    assert set(recording.truth(view)) == {"clients", "class_counts"}


STAMP = ROOT / ".venv/.synced"


@pytest.mark.integration
@pytest.mark.skipif(not STAMP.is_file(), reason="make has not made the environment")
def test_the_steps_of_the_ci_example_run_in_somebody_elses_repository(tmp_path: Path) -> None:
    checkout = tmp_path / "fedleak"
    copy_checkout(checkout)
    for name in (".venv", ".uv"):
        (checkout / name).symlink_to(ROOT / name)
    for name in ("requirements/fedleak.lock", "pyproject.toml", "recorder/pyproject.toml", "guard/pyproject.toml"):
        os.utime(checkout / name, (0, 0))  # older than the environment, which make then leaves as it is
    job = ci_job()
    # The key of what is drawn in secret stays that of all tests, so that every run draws the same.
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("FEDLEAK_") or name == KEY_VARIABLE
    }
    environment = {**inherited, **job["env"]}
    for step in job["steps"]:
        if "run" in step:
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
            )
            said = done.stdout.decode()
            assert done.returncode == 0, said
    kept = next(step["with"]["path"] for step in job["steps"] if "upload-artifact" in step.get("uses", ""))
    assert all((tmp_path / name).is_file() for name in kept.split())
    assert "gate ok" in (tmp_path / "leakage/gate.xml").read_text(encoding="utf-8")


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_without_noise_the_gate_of_the_ci_example_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ci_job()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["ci_dump.py", job["env"]["DUMP"], "0"])
    runpy.run_path(str(ROOT / "docs/audit/ci_dump.py"), run_name="__main__")
    commands = [shlex.split(command.replace("$DUMP", job["env"]["DUMP"])) for command in attack_commands(job)]
    assert [program.main(words[2:]) for words in commands] == [0, FAILED, 0]
    (result,) = json.loads(Path("leakage/gate.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    line = (
        Path(place["artifactLocation"]["uri"])
        .read_text(encoding="utf-8")
        .splitlines()[place["region"]["startLine"] - 1]
    )
    (shard,) = result["relatedLocations"]
    assert shard["physicalLocation"]["artifactLocation"]["uri"].endswith(json.loads(line)["file"])
    assert "GATE FAILED" in Path("leakage/gate.xml").read_text(encoding="utf-8")


def ci_job() -> dict[str, Any]:
    """The job of the example workflow."""
    job = yaml.safe_load(CI.read_text(encoding="utf-8"))["jobs"]["audit"]
    assert isinstance(job, dict)
    return job


def attack_commands(job: dict[str, Any]) -> list[str]:
    """The commands that call fedleak."""
    return [step["run"] for step in job["steps"] if "attack.py" in step.get("run", "")]


def test_the_ci_example_has_everything_that_its_commands_need() -> None:
    job = ci_job()
    checked_out = [
        step.get("with", {}) for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")
    ]
    assert [options.get("path") for options in checked_out] == [None, "fedleak"]
    assert checked_out[1]["repository"].endswith("/fedleak")
    (version,) = (step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", ""))
    assert version in ("3.11", "3.12", "3.13")
    names = [step.get("run", step.get("uses")) for step in job["steps"]]
    made, *used = (names.index(name) for name in ("make -C fedleak .venv/.synced", *attack_commands(job)))
    assert made < min(used)
    dry = ["make", "--dry-run", "-C", str(ROOT), ".venv/.synced"]
    assert subprocess.run(dry, capture_output=True, check=False).returncode == 0
    assert job["env"]["PYTHON"] == "fedleak/.venv/bin/python"
    for command in attack_commands(job):
        python, script, *arguments = shlex.split(command)
        assert (python, script) == ("$PYTHON", "fedleak/attack.py")
        called, _ = parsed(arguments)
        assert called.run in (convert, audit, export)
