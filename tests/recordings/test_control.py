"""Control recordings: each client has the update of another, or noise; the messages of a sum have one update."""

from pathlib import Path
from typing import Literal

import pytest
import torch

from fedleak.core.view import RoundView
from fedleak.recordings.control import ControlRecording
from fedleak.recordings.recording import Recording
from tests.sum_toys import digits, record, sums

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, data = tmp_path_factory.mktemp("control"), digits(clients_per_round=6)
    for name, defenses in (("single", []), ("sums", [sums(2)]), ("one-sum", [sums(6)])):
        record(place / name, data, rounds=1, defenses=defenses)
    return place


def first(recording: Recording) -> RoundView:
    return next(iter(recording.views()))


def changed(folder: Path, name: str, control: Literal["others", "noise"]) -> tuple[RoundView, RoundView]:
    """The view of a recording as it is, and under a control."""
    place = folder / name / "deltas"
    return first(Recording(place)), first(ControlRecording(place, control))


def test_each_client_has_the_update_of_another(folder: Path) -> None:
    before, after = changed(folder, "single", "others")
    for name, value in before.deltas.items():
        assert torch.equal(after.deltas[name], value.roll(1, 0))


def test_messages_of_a_sum_have_the_update_of_another_sum(folder: Path) -> None:
    before, after = changed(folder, "sums", "others")
    assert before.participants is not None
    assert after.participants is not None
    assert torch.equal(before.participants, after.participants)
    name = max(before.deltas, key=lambda one: before.deltas[one].numel())
    sent, given = before.deltas[name].flatten(1), after.deltas[name].flatten(1)
    source = (given[:, None] == sent).all(2).int().argmax(1)
    groups = before.participants
    for message, other in enumerate(source.tolist()):
        assert torch.equal(given[message], sent[other])
        assert not torch.equal(groups[message], groups[other])
        alike = (groups == groups[message]).all(1).nonzero().flatten()
        assert all(torch.equal(given[message], given[one]) for one in alike.tolist())


@pytest.mark.parametrize("control", ["others", "noise"])
def test_the_only_sum_of_a_round_is_replaced_by_noise(folder: Path, control: Literal["others", "noise"]) -> None:
    before, after = changed(folder, "one-sum", control)
    for name, value in before.deltas.items():
        own = after.deltas[name]
        assert not torch.equal(own, value)
        assert torch.equal(own, own[:1].expand_as(own))
        if value[0].numel() > 500:
            assert float(own[0].std()) == pytest.approx(float(value[0].square().mean().sqrt()), rel=0.15)
