"""What the pages in docs say is what the code does."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from datamodules.deltas import Recording
from datamodules.parameter_check import check_shapes
from datamodules.recording_format import FORMAT, Manifest, read_manifest
from experiments.conversion import convert_dump
from modules.registry import learner_from, network_of
from tests.foreign_toys import write_dump

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/recording-format.md").read_text(encoding="utf-8")
CI = ROOT / "docs/ci-example.yml"


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
    recording = Recording(tmp_path / "out")
    with recording._open("rounds/000003-0000.safetensors") as shard:
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


@pytest.mark.parametrize(("leaky", "status"), [(True, 3), (False, 0)])
def test_the_ci_example_fails_where_a_recording_leaks(tmp_path: Path, leaky: bool, status: int) -> None:
    manifest = write_dump(tmp_path / "dump")
    if not leaky:  # everybody sends the same
        files = sorted((tmp_path / "dump").glob("phone-*.npz"))
        for path in files[1:]:
            path.write_bytes(files[0].read_bytes())
    job = yaml.safe_load(CI.read_text(encoding="utf-8"))["jobs"]["audit"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert len(commands) == 2
    environment = {**os.environ, **job["env"], "PYTHONPATH": str(ROOT), "DUMP": str(manifest)}
    results = []
    for command in commands:
        assert command.startswith("python attack.py ")
        typed = command.replace("python attack.py", f"{sys.executable} {ROOT / 'attack.py'}")
        done = subprocess.run(["bash", "-eo", "pipefail", "-c", typed], cwd=tmp_path, env=environment, check=False)
        results.append(done.returncode)
    assert results == [0, status]
    kept = next(step["with"]["path"] for step in job["steps"] if "with" in step)
    assert all((tmp_path / name).is_file() for name in kept.split())
