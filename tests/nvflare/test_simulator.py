"""Jobs of NVFlare's simulator, recorded: the deltas are the clients' own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedleak.commands import program
from fedleak.recordings.recording import Recording
from tests.transformer_toys import f1, found_and_read

pytest.importorskip("nvflare")
ROOT = Path(__file__).resolve().parents[2]
STEPS = 5
"""Of a client in a round, which NVFlare counts instead of examples; as in `tests.nvflare.client`."""
SITES = ("site-1", "site-2", "site-3")


def simulate(folder: Path, kind: str) -> str:
    """Runs the job, and returns what it printed."""
    (folder / "kept").mkdir()
    command = [sys.executable, "-m", "tests.nvflare", str(folder / "deltas"), str(folder / "kept"), kind]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=500)
    return (done.stdout + done.stderr).decode()


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["models", "differences"])
def test_the_recorded_deltas_are_those_of_the_clients(tmp_path: Path, kind: str) -> None:
    said = simulate(tmp_path, kind)
    recording = Recording(tmp_path / "deltas")
    assert recording.rounds == [0, 1], said
    assert recording.closed
    assert recording.manifest.config["system"] == "nvflare"
    assert recording.manifest.versions["nvflare"]
    names = []
    for number in recording.rounds:
        kept = [json.loads((tmp_path / f"kept/{site}-{number}.json").read_text()) for site in SITES]
        (view,) = recording.views(rounds=[number])
        truth = recording.truth(view)["class_counts"].tolist()
        places = [truth.index(one["class_counts"]) for one in kept]
        assert sorted(places) == [0, 1, 2]
        names.append([int(view.pseudonyms[place]) for place in places])
        for place, one in zip(places, kept, strict=True):
            assert int(view.example_counts[place]) == STEPS
            for name, delta in one["deltas"].items():
                assert torch.equal(view.deltas[name][place], torch.tensor(delta))
    assert names[0] == names[1]
    assert program.main(["audit", str(tmp_path / "deltas"), "--out", str(tmp_path / "audit")]) == 0


@pytest.mark.integration
def test_adapters_of_a_patched_trainer_are_recorded_and_tell_words(tmp_path: Path) -> None:
    """``nvflare.client.hf.patch(trainer, params_scope="auto")`` with the prefix ``model.`` of a server's wrapper."""
    said = simulate(tmp_path, "adapters")
    recording = Recording(tmp_path / "deltas")
    assert recording.rounds == [0, 1], said
    assert all(name.startswith("model.base_model.model.") and "lora_" in name for name in recording.manifest.parameters)
    for view in recording.views():
        truth = recording.truth(view)["words"].tolist()
        for site in SITES:
            kept = json.loads((tmp_path / f"kept/{site}-{view.round}.json").read_text())
            place = truth.index(kept["words"])
            assert view.deltas.keys() == kept["deltas"].keys()
            for name, delta in kept["deltas"].items():
                assert torch.equal(view.deltas[name][place], torch.tensor(delta))
    pairs = found_and_read(tmp_path / "deltas", tmp_path / "kept/base")
    assert len(pairs) == 6
    assert min(f1(found, read) for found, read in pairs) > 0.9
    others = [f1(found, read) for (found, _), (_, read) in zip(pairs, [*pairs[1:], pairs[0]], strict=True)]
    assert sum(others) / len(others) < 0.2


@pytest.mark.integration
def test_what_cannot_be_recorded_ends_the_job_with_a_message(tmp_path: Path) -> None:
    said = simulate(tmp_path, "wrong")
    assert "could not be recorded: expected 'age' from every client" in said
    assert not (tmp_path / "deltas/manifest.json").exists()
