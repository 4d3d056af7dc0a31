"""A real Flower training, recorded and audited, beside our own simulation of the same training."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from torch import Tensor

from fedleak.commands import program, train
from fedleak.evaluation.scores import records
from fedleak.evaluation.stored_run import read_results
from fedleak.recordings.recording import Recording

pytest.importorskip("flwr")
pytest.importorskip("ray")
ROOT = Path(__file__).resolve().parents[2]
REAL = Path(os.environ.get("FEDLEAK_DATA", ROOT.parent / "shared" / "data"))
SGD = {"optimizer": "sgd", "learning_rate": 0.05, "batch_size": 32}
"""As in configs/paper/decaf/decaf_tables3to7.yaml."""


def written_config(folder: Path, name: str) -> Path:
    """A configuration of configs/train with plain SGD and without the accuracy on the test images."""
    content = yaml.safe_load((ROOT / f"configs/train/{name}.yaml").read_text())
    model = content["model"].setdefault("init_args", {})
    if model.get("local", {}).get("optimizer") != "sgd":
        model["local"] = SGD
    content["trainer"] |= {"max_steps": 2, "default_root_dir": str(folder / "ours"), "accelerator": "cpu"}
    content["trainer"] |= {"limit_val_batches": 0, "enable_checkpointing": False}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def by_client(folder: Path, number: int, key: str) -> list[dict[str, Tensor]]:
    """Deltas of a round's clients in the order of their true numbers."""
    recording = Recording(folder)
    found = {}
    for view in recording.views(rounds=[number]):
        for place, client in enumerate(recording.truth(view)[key].tolist()):
            found[int(client)] = {name: value[place] for name, value in view.deltas.items()}
    return [found[client] for client in sorted(found)]


def decaf(folder: Path) -> dict[str, tuple[float, tuple[float, float], int]]:
    """Distances of Decaf by metric, with interval and n."""
    results = records(read_results(folder).results)
    decaf = [r for r in results if r["attack"] == "decaf" and r["metric"] in ("l1", "l2")]
    return {r["metric"]: (r["mean"], (r["low"], r["high"]), r["n"]) for r in decaf}


@pytest.mark.integration
@pytest.mark.parametrize(("name", "root"), [("decaf_digits", None), ("decaf_mnist", REAL)])
def test_flower_and_our_own_simulation_leak_the_same(tmp_path: Path, name: str, root: Path | None) -> None:
    if root is not None and not (root / "MNIST/raw").is_dir():
        pytest.skip("MNIST is not there")
    config = written_config(tmp_path, name)
    given = [] if root is None else [str(root)]
    assert train.run(["fit", "--config", str(config), *(["--data.root", *given] if given else [])]) == 0
    theirs = tmp_path / "flower/deltas"
    command = [sys.executable, "-m", "tests.flower", str(config), str(theirs), *given]
    paths = ":".join(str(ROOT / part) for part in ("", "recorder", "guard"))
    environment = {**os.environ, "PYTHONPATH": paths, "FLWR_TELEMETRY_ENABLED": "0"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=1200)

    # The same deltas, to rounding: Flower counts rounds from 1.
    for number in (0, 1):
        ours = by_client(tmp_path / "ours/deltas", number, "clients")
        flowers = by_client(theirs, number + 1, "partition")
        for own, other in zip(ours, flowers, strict=True):
            for parameter, value in own.items():
                torch.testing.assert_close(other[parameter], value, atol=2e-5, rtol=1e-3)

    for folder in (tmp_path / "ours", tmp_path / "flower"):
        assert program.main(["audit", str(folder / "deltas"), "--out", str(folder)]) == 0
    expected, found = decaf(tmp_path / "ours"), decaf(tmp_path / "flower")
    print({"ours": expected, "flower": found})
    for metric, (_, (low, high), n) in expected.items():
        assert found[metric][2] == n == 10
        assert low <= found[metric][0] <= high
    manifest = Recording(theirs).manifest
    assert manifest.versions["flwr"]
    assert manifest.config["strategy"].endswith("FedAvg")
    assert manifest.config["settings"]["min_train_nodes"] == 10
