"""docs/audit/record-your-system.md: its loop records a training that can be audited, and its examples are short."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedleak.commands import program
from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder
from tests.places import ROOT

PAGE = (ROOT / "docs/audit/record-your-system.md").read_text(encoding="utf-8")
LOOP, STREAMED, FLOWER, NVFLARE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
Update = tuple[dict[str, Tensor], int]


def lines_to_record(example: str, system: str = "") -> int:
    """Lines that a system without a recording does not have."""
    return len([line for line in example.splitlines() if line.strip() and line not in system.splitlines()])


def test_the_lines_that_recording_needs() -> None:
    without = "\n".join(line for line in LOOP.splitlines() if "ecorder" not in line)
    assert lines_to_record(LOOP, without) <= 5
    assert lines_to_record(FLOWER) <= 10
    assert lines_to_record(NVFLARE) <= 15


def run_the_loop() -> tuple[list[dict[str, Tensor]], list[dict[int, Update]]]:
    """The page's loop with plain PyTorch clients; returns the models and updates of its rounds."""
    torch.manual_seed(0)
    models: list[dict[str, Tensor]] = []
    sent: list[dict[int, Update]] = []
    classes = {client: torch.randint(0, 3, (12,)) for client in range(6)}
    features = {client: torch.randn(12, 4) + classes[client][:, None] for client in classes}

    def train(client: int, before: dict[str, Tensor]) -> Update:
        own = torch.nn.Linear(4, 3)
        own.load_state_dict(before)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        torch.nn.functional.cross_entropy(own(features[client]), classes[client]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return {name: value.detach().clone() for name, value in own.state_dict().items()}, 12

    def average(updates: dict[int, Update]) -> dict[str, Tensor]:
        sent.append(updates)
        states = [state for state, _ in updates.values()]
        mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
        models.append(mean)
        return mean

    counts = {client: torch.bincount(own, minlength=3).tolist() for client, own in classes.items()}
    model = torch.nn.Linear(4, 3)
    models.append({name: value.detach().clone() for name, value in model.state_dict().items()})
    known = {"train": train, "average": average, "clients": list(classes), "counts": counts, "rounds": 2}
    exec(compile(LOOP, "record-your-system.md", "exec"), {**known, "model": model})
    return models, sent


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_the_loop_of_the_page_is_recorded_exactly_and_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    models, sent = run_the_loop()
    recording = Recording("runs/mine/deltas")
    assert recording.rounds == [0, 1]
    for number in recording.rounds:
        (view,) = recording.views(rounds=[number])
        for name, before in models[number].items():
            own = torch.stack([state[name] - before for state, _ in sent[number].values()])
            assert torch.equal(view.model[name], before)
            assert sorted(view.deltas[name].flatten(1).tolist()) == sorted(own.flatten(1).tolist())
    assert program.main(["audit", "runs/mine/deltas", "--out", "runs/mine"]) == 0
    assert "last-layer-counts" in Path("runs/mine/results.json").read_text(encoding="utf-8")


def test_the_streamed_round_of_the_page_is_read_as_the_one_of_the_loop(tmp_path: Path) -> None:
    before = {"weight": torch.zeros(2, 3)}
    replies = [(f"client {place}", {"weight": torch.full((2, 3), float(place))}, place) for place in range(3)]
    deltas = []
    for name in ("streamed", "whole"):
        with Recorder(tmp_path / name, parameters=before, key=b"k" * 32) as recorder:
            if name == "whole":
                recorder.round(0, before, {client: (update, count) for client, update, count in replies})
            else:
                known = {"recorder": recorder, "number": 0, "before": before, "replies": replies}
                exec(compile(STREAMED, "record-your-system.md", "exec"), known)
        (view,) = Recording(tmp_path / name).views()
        deltas.append(dict(zip(view.pseudonyms.tolist(), view.deltas["weight"].tolist(), strict=True)))
    assert deltas[0] == deltas[1]
