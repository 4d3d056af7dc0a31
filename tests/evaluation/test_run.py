"""results.json: what is written is read back, older files are read too, and damage is one clear error."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedleak.commands import program
from fedleak.core.errors import InputError
from fedleak.evaluation.run import read_published
from fedleak.evaluation.scores import AttackInfo
from tests.reports.toys import cell, run, table


def same(one: pd.DataFrame, two: pd.DataFrame) -> None:
    assert set(one) == set(two)
    first, second = (table.astype(object).where(table.notna(), None) for table in (one[list(two)], two))
    pd.testing.assert_frame_equal(first, second)


def test_a_run_is_read_back(tmp_path: Path) -> None:
    found, plain = read_published(run().write(tmp_path)), pd.DataFrame()
    same(found.results, run().results)
    same(found.differences, run().differences)
    assert type(found.results["setting.queries"][0]) is int
    rest = dataclasses.replace(found, results=plain, differences=plain)
    assert repr(rest) == repr(run(results=plain, differences=plain))


def test_a_cell_is_written_as_format_1_says(tmp_path: Path) -> None:
    first, second = json.loads(run().write(tmp_path).read_text())["results"]
    assert first == {
        **{"attack": "direction", "setting": {"data": "d", "epsilon": 1.5, "queries": 4}, "metric": "auc", "mean": 0.7},
        **{"std": 0.1, "ci95": [0.7 - 0.03, None], "n": 20, "seconds_per_victim": 0.1, "seeds": 2},
        **{"paper": {"value": 0.9, "source": "T"}, "family": "recommendation", "baseline": False},
        **{"threat_model": {"sees": "the update", "knows": "nothing", "active": False}},
        **{"name": "direction", "variant": None, "with_prior": False},
        **{"role": "ours", "comparison": "", "question": "q", "tells": "x", "unbounded": "", "luck": None},
    }
    assert (second["baseline"], second["paper"], second["threat_model"], second["mean"]) == (True, None, None, None)


def test_a_file_without_the_newer_keys_is_read(tmp_path: Path) -> None:
    content = json.loads(run().write(tmp_path).read_text())
    assert content["format"] == 1
    for key in ("differences", "gate", "read_back", "causes", "not_run"):
        del content[key]
    for result in content["results"]:
        for key in ("seeds", "family", "baseline", "threat_model", "role", "question", "tells", "unbounded", "luck"):
            del result[key]
        for key in ("name", "variant", "with_prior"):
            del result[key]
    (tmp_path / "results.json").write_text(json.dumps({**content, "of a later version": 1}))
    old = read_published(tmp_path / "results.json")
    assert (len(old.differences), old.gate, old.read_back) == (0, [], [])
    later = {"role": "ours", "question": None, "sees": "", "knows": "", "tells": "", "family": None, "seeds": 1}
    later |= {"name": ""}
    same(old.results, run().results.assign(**later))
    assert program.main(["report", str(tmp_path), "--out", str(tmp_path / "page")]) == 0


WRONG: list[Any] = [None, True, 7, -1.5, "x", [], {}, [1, 2], {"a": None}, 10**400]


def places(content: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every entry."""
    keys = content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    return [path for key in keys for path in [(*at, key), *places(content[key], (*at, key))]]


@pytest.mark.integration
def test_whatever_is_put_in_place_of_an_entry_is_read_or_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads(run().write(tmp_path).read_text())
    read, refused = [], 0
    for path in places(whole):
        for wrong in random.Random(str(path)).sample(WRONG, 3):
            content = json.loads(json.dumps(whole))
            inside = content
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = wrong
            (tmp_path / "results.json").write_text(json.dumps(content))
            try:
                read_published(tmp_path / "results.json")
                read.append(content)
            except InputError:
                refused += 1
    assert refused > 50
    for content in random.Random(0).sample(read, 5):  # a page is made of what is read
        (tmp_path / "results.json").write_text(json.dumps(content))
        status = program.main(["report", str(tmp_path), "--out", str(tmp_path / "page")])
        assert status in (0, 2), content
        assert capsys.readouterr().err.count("\n") == (status == 2)


@pytest.mark.parametrize("content", ["", "[]", "null", '{"format": 2}', '{"format": 1}', "[" * 100_000])
def test_what_is_no_results_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(InputError, match="format"):
        read_published(tmp_path / "results.json")


@pytest.mark.parametrize("setting", [{"data": []}, {"data": {}}, {"data": 10**400}])
def test_a_setting_that_is_no_value_is_refused(tmp_path: Path, setting: dict[str, Any]) -> None:
    content = json.loads(run().write(tmp_path).read_text())
    content["results"][0]["setting"] = setting
    (tmp_path / "results.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="format"):
        read_published(tmp_path / "results.json")


def test_a_joined_report_has_the_threat_models_of_its_runs(tmp_path: Path) -> None:
    for name, active in (("passive", False), ("active", True)):
        line = AttackInfo(role="published", sees=f"what a {name} server sees", knows="nothing", active=active)
        results = table(cell("raifle", 0.7), lines={"raifle": line})
        run(experiment=name, results=results).write(tmp_path / name)
    folders = [str(tmp_path / name) for name in ("passive", "active")]
    assert program.main(["report", *folders, "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page/report.html").read_text()
    assert 'data-attack="raifle in passive"' in page
    assert "<td>raifle in active</td><td>active</td>" in page
    assert "what a active server sees" in page
    joined = read_published(tmp_path / "page/results.json").results
    assert joined[["sees", "active"]].values.tolist() == [
        ["what a passive server sees", False],
        ["what a active server sees", True],
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"limit": "0.6"},
        {"limit": None},
        {"limit": 10**400},
        {"metric": 1},
        {"message": None},
        {"verdict": "kept"},
        {"verdict": ["ok"]},
        {"value": "x"},
        {"n": 0.5},
        {"setting": "epsilon 8"},
        {"round": "2"},
    ],
)
def test_a_verdict_with_other_fields_is_refused_by_the_reader(tmp_path: Path, changed: dict[str, Any]) -> None:
    """JUnit, SARIF, the page and the statement show them."""
    content = json.loads(run().json())
    content["gate"][0] |= changed
    (tmp_path / "results.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"results\.json"):
        read_published(tmp_path / "results.json")
