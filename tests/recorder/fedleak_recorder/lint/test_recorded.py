"""A recorder warns once of what is more than an update, and records it nevertheless."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak_recorder import Recorder, Sent
from fedleak_recorder.lint.recorded import LintOfRecorded
from tests.lint_toys import draws_of, network, table


def recorded(folder: Path, arrays: dict[str, Any], rounds: int = 3) -> Recorder:
    shapes = {name: value.shape for name, value in arrays.items()}
    with Recorder(folder, holds="deltas", parameters=shapes) as recorder:
        for number in range(rounds):
            recorder.round(number, None, dict.fromkeys(("a", "b"), (arrays, 40)))
    return recorder


def test_rows_are_one_warning_and_are_recorded(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="holds more than an update: raw-rows: arrays/weight") as warned:
        recorder = recorded(tmp_path, {"weight": table(draws_of(0), 40).astype("f")})
    assert len(warned) == 1
    assert [finding.kind for finding in recorder.findings] == ["raw-rows"]
    assert len(list((tmp_path / "rounds").iterdir())) == 3


def test_an_update_is_none(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert recorded(tmp_path, network(draws_of(0))).findings == []


def test_what_is_sent_beside_the_arrays_is_looked_at() -> None:
    lint = LintOfRecorded()
    losses = draws_of(0).random(40).tolist()
    sent = Sent(client="a", examples=40, arrays=list(network(draws_of(0)).values()), beside={"m": {"loss": losses}})
    with pytest.warns(UserWarning, match="per-record: m/loss"):
        lint.look(sent, "a message")


def test_what_no_lint_can_read_is_left_to_the_recorder() -> None:
    lint = LintOfRecorded()
    lint.look(Sent(client="a", examples="many", arrays={"weight": object()}), "a message")
    assert lint.findings == []
    rows = {"weight": table(draws_of(0), 40)}
    with pytest.warns(UserWarning, match="raw-rows"):
        lint.look(Sent(client="a", examples=40, arrays=rows, beside={"m": object()}), "a message")


def test_later_messages_are_not_looked_at() -> None:
    lint = LintOfRecorded()
    for _ in range(16):
        lint.look(Sent(client="a", examples=40, arrays=network(draws_of(0))), "a message")
    lint.look(Sent(client="a", examples=40, arrays={"weight": np.ones((40, 3)) * 70}), "a message")
    assert lint.findings == []
