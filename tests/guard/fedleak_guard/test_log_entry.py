"""Logs whose chain is whole and whose entries are odd: one clear error, whoever reads them."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedleak_guard.chained_log import FIRST, entry_hash
from fedleak_guard.command import main
from fedleak_guard.log_entry import read_decisions, strange_entry
from fedleak_recorder.errors import InputError
from tests.guard_toys import log_of, message, site


@pytest.fixture
def entry(tmp_path: Path) -> dict[str, Any]:
    """An entry that a guard wrote."""
    site(tmp_path, "received: {record: true}\n").release(message())
    entries, torn = read_decisions(log_of(tmp_path))
    assert torn == 0
    return entries[0]


ODD: dict[str, Any] = {
    "time": ["now", None, True, -1, 1e300],
    "event": ["left", None, []],
    "job": [5, None, {}],
    "round": ["1", None, 1.5],
    "policy": [None],
    "tensors": ["2", None],
    "noised": [1, "no"],
    "precision": ["much", -1, []],
    "checks": [
        *(None, [], {"update-norm": None}, {"update-norm": {"found": 1}}),
        {"a": {"found": True, "value": "b", "limit": 1}},
        {"finite-numbers": {"found": False, "limit": 0}},
        {"finite-numbers": {"found": False, "value": 0}},
    ],
    "not_made": [[], {"own-records": 3}],
    "statistics": [None, {"received-model": 3}, {"received-model": {"a": []}}],
    "reasons": ["text", [3]],
    "date": [3],
}


@pytest.mark.parametrize(("name", "place"), [(name, place) for name in ODD for place in range(len(ODD[name]))])
def test_an_odd_entry_is_one_line_for_every_reader(
    tmp_path: Path, entry: dict[str, Any], name: str, place: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert strange_entry(entry) is None
    odd = {**entry, name: ODD[name][place], "previous": FIRST, "number": 0}
    odd["hash"] = entry_hash(odd)
    path = log_of(tmp_path)
    path.write_text(json.dumps(odd) + "\n")
    with pytest.raises(InputError, match="a decision of the guard"):
        read_decisions(path)
    for command in (["evidence", str(path)], ["verify", str(path)]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "in entry 0 of" in said


def test_an_entry_that_lacks_a_part_is_odd(entry: dict[str, Any]) -> None:
    for name in ODD:
        assert strange_entry({key: value for key, value in entry.items() if key != name}) == f"no {name}"
