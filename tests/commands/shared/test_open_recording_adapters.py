"""Adapters trained with peft are audited from the command line, in each spelling and type of their numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from fedleak.commands import program
from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder
from tests.adapter_clients import State, load, network, save_base, state_of, train, truth_of
from tests.transformer_toys import f1, found_and_read

pytestmark = pytest.mark.integration
CLIENTS = 4
SPELLINGS: dict[str, Callable[[str], str]] = {
    "state dict": lambda name: name,
    "named_parameters": lambda name: name.replace(".weight", ".default.weight"),
    "prefix": lambda name: f"model.{name}",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    save_base(folder)
    return folder


def trained(base: Path, dtype: torch.dtype) -> tuple[State, list[State]]:
    """Adapters that the server sends, and those that the clients return, in a type of numbers."""
    model = network(base)
    first = {name: value.to(dtype) for name, value in state_of(model).items()}
    returned = []
    for client in range(CLIENTS):
        load(model, first)
        train(model, client)
        returned.append({name: value.to(dtype) for name, value in state_of(model).items()})
    return first, returned


def record(
    folder: Path, first: State, returned: list[State], names: Callable[[str], str] = str, **options: Any
) -> None:
    with Recorder(folder, data="texts", **options) as recorder:
        updates = {client: (spelled(state, names), 3) for client, state in enumerate(returned)}
        recorder.round(0, spelled(first, names), updates, truth={client: truth_of(client) for client in updates})


def spelled(state: State, names: Callable[[str], str]) -> State:
    return {names(name): value for name, value in state.items()}


def options(folder: Path, base: Path, **changed: str) -> list[str]:
    given = {"path": str(base), "adapter.rank": "4", "adapter.targets": "[q_proj, v_proj]", **changed}
    learner = [word for name, value in given.items() for word in (f"--learner.{name}", value)]
    return [str(folder / "deltas"), "--out", str(folder / "out"), "--learner", "Pretrained", *learner]


@pytest.mark.parametrize(
    ("spelling", "dtype"),
    [*((spelling, torch.float32) for spelling in SPELLINGS), ("prefix", torch.bfloat16), ("prefix", torch.float16)],
    ids=str,
)
def test_words_are_found_in_each_spelling_and_type(
    base: Path, tmp_path: Path, spelling: str, dtype: torch.dtype
) -> None:
    names = SPELLINGS[spelling]
    first, returned = trained(base, dtype)
    record(tmp_path / "deltas", first, returned, names)
    recording = Recording(tmp_path / "deltas")
    assert set(recording.manifest.parameters) == set(map(names, first))
    (view,) = recording.views()
    words = recording.truth(view)["words"].tolist()
    for client, state in enumerate(returned):
        place = words.index(truth_of(client)["words"])
        for name, value in state.items():
            assert torch.equal(view.deltas[names(name)][place], (value.double() - first[name].double()).float())
    pairs = found_and_read(tmp_path / "deltas", base)
    assert min(f1(found, read) for found, read in pairs) > (0.99 if dtype == torch.float32 else 0.85)
    others = [f1(found, read) for (found, _), (_, read) in zip(pairs, [*pairs[1:], pairs[0]], strict=True)]
    assert sum(others) / len(others) < 0.2


def test_an_audit_needs_no_line_of_code(base: Path, tmp_path: Path, without_figures: None) -> None:
    record(tmp_path / "deltas", *trained(base, torch.float32))
    assert program.main(["audit", *options(tmp_path, base)]) == 0
    scores = pd.read_csv(tmp_path / "out/scores.csv").set_index(["attack", "metric"])["value"]
    assert scores["adapter-words", "read-f1"].tolist() == [1.0] * CLIENTS
    assert scores["adapter-words", "predicted-read-f1"].tolist() == [1.0] * CLIENTS


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"adapter.rank": "8"}, ["expected adapters of rank 8", "found rank 4", "--learner.adapter.rank"]),
        ({"adapter.targets": "[q_proj]"}, ["2 layers (q_proj)", "found rank 4 at 4 layers (q_proj, v_proj)"]),
        ({"adapter.targets": "[all-linear]"}, ["14 layers", "4 layers (q_proj, v_proj)", "--learner.adapter.targets"]),
        ({"adapter.targets": "[nowhere]"}, ["adapter.targets among the layers", "nowhere"]),
        ({"adapter.variant": "ffa"}, ["lora_A are in the recording", "variant lora"]),
        ({"path": "nowhere"}, ["config.json", "nowhere"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_options_of_other_adapters_are_one_line(
    base: Path, tmp_path: Path, changed: dict[str, str], message: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "deltas", *trained(base, torch.float32))
    refused(["audit", *options(tmp_path, base, **changed)], message, capsys)


def test_a_network_without_weights_is_one_line(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "deltas", *trained(base, torch.float32))
    refused(
        ["audit", *options(tmp_path, base, path=str(base / "config.json"))],
        ["weights as safetensors", "found none"],
        capsys,
    )


def test_a_description_in_the_recording_needs_the_folder_alone(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = {"rank": 4, "targets": ["q_proj", "v_proj"]}
    arguments = {"config": (base / "config.json").read_text(), "adapter": adapter, "local": {"learning_rate": 2.0}}
    record(tmp_path / "deltas", *trained(base, torch.float32), learner={"name": "pretrained", "arguments": arguments})
    words = ["run", "--attack", "adapter-words", *options(tmp_path, base)[:3]]
    refused(words, ["weights as safetensors", "found none", "--learner.path DIR"], capsys)
    assert program.main([*words, "--learner.path", str(base)]) == 0
    scores = pd.read_csv(tmp_path / "out/scores.csv").set_index("metric")["value"]
    assert scores["read-f1"].tolist() == [1.0] * CLIENTS


@pytest.mark.parametrize("merged", [False, True])
def test_weights_without_adapters_are_one_line(
    base: Path, tmp_path: Path, merged: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """All weights of the network, or those of the adapted layers after `merge_and_unload`."""
    model = network(base)
    train(model, 0)
    whole = {name: value.detach().clone() for name, value in model.merge_and_unload().named_parameters()}
    sent = {name: value for name, value in whole.items() if not merged or "q_proj" in name or "v_proj" in name}
    record(tmp_path / "deltas", sent, [sent])
    message = [f"{len(sent)} parameters without any", "lora_A and lora_B", "before adapters are merged", "variant none"]
    refused(["audit", *options(tmp_path, base)], message, capsys)
    if not merged:
        given = options(tmp_path, base, **{"adapter.variant": "none"})
        assert program.main(["run", "--attack", "adapter-words", *given]) == 2
        assert "adapters of a network that reads tokens" in capsys.readouterr().err


def refused(words: list[str], message: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert program.main(words) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedleak: ")]
    assert len(said) == 1
    assert all(part in said[0] for part in message), said[0]
