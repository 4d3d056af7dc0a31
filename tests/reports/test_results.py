"""results.json: what is written is read back, older files are read too, and damage is one clear error."""

import dataclasses
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

import attack
from errors import InputError
from reports.results import Difference, Paper, Result, Run

MODEL = {"sees": "the update", "knows": "nothing", "active": False}


def run() -> Run:
    first = Result(
        *("direction", {"data": "d", "epsilon": 1.5}, "auc", 0.7, 0.1, (0.6, math.nan), 10, 0.1, Paper(0.9, "Table V")),
        **{"seeds": 2, "family": "interactions", "baseline": False, "threat_model": MODEL},  # type: ignore[arg-type]
    )
    second = Result("chance", {"data": "d"}, "auc", math.nan, 0.0, (0.4, 0.6), 0, 0.1, baseline=True)
    difference = Difference("direction", "chance", {"data": "d"}, "auc", 0.2, (0.1, 0.3), 10, 2)
    gate = [{"metric": "auc", "limit": 0.6, "verdict": "failed", "message": "GATE FAILED"}]
    data = {"name": "d", "sha256": "0"}
    return Run("e", "c", 0, None, {"torch": "2"}, data, "h", 1.0, [first, second], {}, [], [difference], gate, ["k"])


def test_a_run_is_read_back(tmp_path: Path) -> None:
    assert repr(Run.read(run().write(tmp_path))) == repr(run())


def test_a_file_without_the_newer_keys_is_read(tmp_path: Path) -> None:
    content = json.loads(run().write(tmp_path).read_text())
    assert content["format"] == 1
    for key in ("differences", "gate", "read_back", "causes", "not_run"):
        del content[key]
    for result in content["results"]:
        for key in ("seeds", "family", "baseline", "threat_model"):
            del result[key]
    (tmp_path / "results.json").write_text(json.dumps({**content, "of a later version": 1}))
    old = Run.read(tmp_path / "results.json")
    assert (old.differences, old.gate, old.read_back) == ([], [], [])
    assert old.results[0] == dataclasses.replace(
        run().results[0], seeds=1, family=None, threat_model=None, ci95=old.results[0].ci95
    )


WRONG: list[Any] = [None, True, 7, -1.5, "x", [], {}, [1, 2], {"a": None}, 10**400]


def places(content: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every entry."""
    keys = content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    return [path for key in keys for path in [(*at, key), *places(content[key], (*at, key))]]


def test_whatever_is_put_in_place_of_an_entry_is_read_or_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads(run().write(tmp_path).read_text())
    refused = 0
    for path in places(whole):
        for wrong in random.Random(str(path)).sample(WRONG, 3):
            content = json.loads(json.dumps(whole))
            inside = content
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = wrong
            (tmp_path / "results.json").write_text(json.dumps(content))
            status = attack.main(["report", str(tmp_path), "--out", str(tmp_path / "page")])
            said = capsys.readouterr().err
            assert status in (0, 2), (path, wrong)
            assert said.count("\n") == (status == 2)
            refused += status == 2
    assert refused > 50


@pytest.mark.parametrize("content", ["", "[]", "null", '{"format": 2}', '{"format": 1}', "[" * 100_000])
def test_what_is_no_results_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(InputError, match="of format 1"):
        Run.read(tmp_path / "results.json")


def test_a_joined_report_has_the_threat_models_of_its_runs(tmp_path: Path) -> None:
    for name, active in (("passive", False), ("active", True)):
        model = {**MODEL, "sees": f"what a {name} server sees", "active": active}
        result = Result("raifle", {"data": "d"}, "auc", 0.7, 0.1, (0.6, 0.8), 9, 0.1, threat_model=model)
        dataclasses.replace(run(), experiment=name, results=[result]).write(tmp_path / name)
    folders = [str(tmp_path / name) for name in ("passive", "active")]
    assert attack.main(["report", *folders, "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page/report.html").read_text()
    assert "raifle in passive (passive server)" in page
    assert "raifle in active (active server)" in page
    assert "what a active server sees" in page
    joined = Run.read(tmp_path / "page/results.json")
    assert [r.threat_model for r in joined.results if r.threat_model] == [
        {**MODEL, "sees": f"what a {name} server sees", "active": name == "active"} for name in ("passive", "active")
    ]
