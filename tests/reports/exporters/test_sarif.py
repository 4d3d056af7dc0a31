"""Findings of a gate as a file that collections of security findings read."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.run import Recorded, RecordedLine, Run
from fedleak.reports.exporters.sarif import GATE, Sarif, write_gate_alerts
from tests.reports.toys import LINES, cell, run, table
from tests.wording import lacking

OUTCOMES = ("ok", "failed", "undecided", "unchecked")
SCHEMA = "FEDLEAK_SARIF_SCHEMA"
"""Variable with the file of the schema of SARIF 2.1.0, see docs/audit/evidence.md."""


def verdict(outcome: str, attack: str | None, **more: Any) -> dict[str, Any]:
    numbers = {"value": 0.7, "low": 0.6, "high": 0.8, "n": 9}
    return {"metric": "auc", "limit": 0.6, "attack": attack, **numbers, "verdict": outcome, "message": outcome, **more}


def recorded(*rounds: int, folder: str = "a b/deltas") -> Recorded:
    places = [
        RecordedLine(
            round=number, file="journal.jsonl", line=number + 1, shards=[f"rounds/{number:06d}-0000.safetensors"]
        )
        for number in rounds
    ]
    return Recorded(folder=folder, sha256="0", places=places)


def gated(**changed: Any) -> Run:
    """A run with a limit of each outcome."""
    attacks = ("codebook", "raifle", "codebook", None)
    verdicts = [verdict(outcome, attack) for outcome, attack in zip(OUTCOMES, attacks, strict=True)]
    verdicts[1] |= {"setting": {"epsilon": 1.5}, "round": 1}
    results = table(cell("codebook", 0.7), cell("raifle", 0.6), cell("chance", 0.5), lines=LINES)
    options: dict[str, Any] = {"results": results, "gate": verdicts, "recording": recorded(0, 1, 2, 3)}
    options |= {
        "not_run": {"decaf": Reason("misfit", says="it lacks labels")},
        "unrelated": {"dager": Reason("misfit", says="it lacks words")},
    }
    return run(**{**options, **changed})


def log_of(content: bytes) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(content)
    (one,) = log["runs"]
    assert log["version"] == "2.1.0"
    return dict(one)


def test_a_verdict_is_a_result_and_only_an_exceeded_limit_is_a_failure() -> None:
    results = log_of(Sarif().content(gated()))["results"]
    found = [(one["kind"], one["level"]) for one in results]
    assert found == [
        *(("pass", "none"), ("fail", "error"), ("open", "none"), ("open", "none")),
        *(("open", "none"), ("notApplicable", "none")),
    ]
    assert [one["ruleId"] for one in results] == [
        *("ranking/codebook", "ranking/raifle", "ranking/codebook", "limit/auc"),
        *("composition/decaf", "reconstruction/dager"),
    ]
    assert not lacking(results[5]["message"]["text"], "dager", "did not run", "lacks words")


def test_alerts_are_the_limits_that_are_not_kept() -> None:
    assert [one["message"]["text"] for one in log_of(Sarif(results="alerts").content(gated()))["results"]] == [
        *("failed", "undecided", "unchecked"),
    ]


def test_the_attack_of_a_result_is_said_with_its_setting_and_round() -> None:
    results = log_of(Sarif().content(gated()))["results"]
    assert [one["properties"]["attack"] for one in results[:4]] == [
        *("codebook", "raifle in epsilon 1.5 in round 1", "codebook", None)
    ]


def test_a_verdict_of_an_earlier_version_has_its_setting_in_the_label() -> None:
    result, *_ = log_of(Sarif().content(gated(gate=[verdict("failed", "raifle in epsilon 1.5")], recording=None)))[
        "results"
    ]
    assert (result["kind"], result["properties"]["attack"]) == ("fail", "raifle in epsilon 1.5")
    assert "No attack of the audit measured" not in json.dumps(result)


def test_a_result_names_the_line_of_the_journal_and_the_file_of_its_round() -> None:
    result = log_of(Sarif().content(gated()))["results"][1]
    (location,), (shard,) = result["locations"], result["relatedLocations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "a%20b/deltas/journal.jsonl"},
        "region": {"startLine": 2},
    }
    assert location["logicalLocations"][0]["name"] == "round 1"
    assert shard["physicalLocation"]["artifactLocation"]["uri"] == "a%20b/deltas/rounds/000001-0000.safetensors"


def test_a_run_of_several_recordings_names_its_results() -> None:
    for result in log_of(Sarif().content(gated(recording=None)))["results"]:
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "results.json"


def test_a_rule_names_its_goal_in_public_taxonomies() -> None:
    one = log_of(Sarif().content(gated()))
    rules = {rule["id"]: rule for rule in one["tool"]["driver"]["rules"]}
    targets = [relation["target"] for relation in rules["composition/decaf"]["relationships"]]
    assert [target["id"] for target in targets] == ["NISTAML.034", "AML.T0024.000", "D"]
    for target in targets:
        taxonomy = one["taxonomies"][target["toolComponent"]["index"]]
        assert taxonomy["name"] == target["toolComponent"]["name"]
        assert {"id": target["id"]} in taxonomy["taxa"]


def test_the_fingerprint_depends_on_limit_attack_and_recording_alone() -> None:
    def prints(**changed: Any) -> list[str]:
        results = log_of(Sarif().content(gated(**changed)))["results"]
        return [one["partialFingerprints"]["primaryLocationLineHash"] for one in results]

    numbers = [{**one, "value": 0.9, "n": 30, "message": "more"} for one in gated().gate]
    first = prints()
    assert prints(recording=recorded(7, 8, 9, 9), gate=numbers) == first
    assert first[0] == first[2]  # two verdicts on one limit and attack
    assert len({*first}) == len(first) - 1
    assert not {*prints(recording=recorded(0, 1, 2, 3, folder="other"))} & {*first}
    stricter = [{**one, "limit": 0.5} for one in gated().gate]
    assert not {*prints(gate=stricter)[:4]} & {*first[:4]}


def test_the_file_has_what_code_scanning_asks_for() -> None:
    one = log_of(Sarif().content(gated()))
    rules = one["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert 0 < len(rule["shortDescription"]["text"]) <= 1024
        assert 0 < len(rule["fullDescription"]["text"]) <= 1024
        assert rule["help"]["text"]
        assert rule["help"]["markdown"]
        assert 0 <= float(rule["properties"]["security-severity"]) <= 10
        assert isinstance(rule["properties"]["security-severity"], str)
        assert "security" in rule["properties"]["tags"]
        assert len(rule["properties"]["tags"]) <= 20
    for result in one["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] >= 1
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert not uri.startswith("/")
        assert ":" not in uri
        assert result["partialFingerprints"]["primaryLocationLineHash"]


def test_infinite_numbers_and_any_text_can_be_read_back() -> None:
    made = gated(gate=[verdict("failed", "codebook", value=float("inf"), message='"<\u2264\n')], recording=None)
    (result, *_) = log_of(Sarif().content(made))["results"]
    assert result["properties"]["value"] == "inf"
    assert result["message"]["text"] == '"<\u2264\n'


def test_no_folder_of_the_machine_is_in_the_file() -> None:
    content = Sarif().content(gated(command="python /somewhere/attack.py audit /somewhere/else/deltas"))
    assert b"somewhere" not in content
    assert b"audit ..." in content


def test_alerts_do_not_outlive_a_run_without_limits(tmp_path: Path) -> None:
    write_gate_alerts(tmp_path / "new", gated())
    assert (tmp_path / "new" / GATE).is_file()
    for other in (gated(gate=[], recording=None), None):
        (tmp_path / GATE).write_text("of an earlier audit")
        write_gate_alerts(tmp_path, other)
        assert not (tmp_path / GATE).exists()
    write_gate_alerts(tmp_path / "nowhere", None)


@pytest.mark.skipif(not os.environ.get(SCHEMA), reason=f"{SCHEMA} names no file of the schema")
def test_the_schema_accepts_every_file() -> None:
    validators = pytest.importorskip("jsonschema").validators
    schema = json.loads(Path(os.environ[SCHEMA]).read_text(encoding="utf-8"))
    check = validators.validator_for(schema)(schema)
    for made in (gated(), gated(recording=None), gated(gate=[], recording=None), run()):
        for kept in ("all", "alerts"):
            assert [*check.iter_errors(json.loads(Sarif(results=kept).content(made)))] == []
    wrong = json.loads(Sarif().content(gated()))
    wrong["runs"][0]["results"][0]["kind"] = "leak"
    assert [*check.iter_errors(wrong)]
