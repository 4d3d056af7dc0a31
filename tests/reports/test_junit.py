"""A gate's verdicts are tests to a CI system."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fedleak.reports.junit import NAME, write_gate


def verdict(metric: str, outcome: str, message: str) -> dict[str, Any]:
    return {"metric": metric, "limit": 0.6, "verdict": outcome, "message": message}


def test_every_limit_is_a_test_and_only_ok_passes(tmp_path: Path) -> None:
    outcomes = ("ok", "failed", "undecided", "unchecked")
    write_gate(tmp_path / "new", [verdict("auc", outcome, f"{outcome} <&\u2264>") for outcome in outcomes])
    whole = ElementTree.parse(tmp_path / "new" / NAME).getroot()
    (suite,) = whole
    for element in (whole, suite):
        assert [element.get(name) for name in ("tests", "failures", "errors")] == ["4", "1", "2"]
    inner = [case[0] for case in suite]
    assert [element.tag for element in inner] == ["system-out", "failure", "error", "error"]
    assert [element.text for element in inner] == [f"{outcome} <&\u2264>" for outcome in outcomes]
    assert [element.get("type") for element in inner[1:]] == list(outcomes[1:])
    assert {case.get("name") for case in suite} == {"limit 0.6 on auc"}


def test_a_run_without_limits_leaves_no_earlier_verdict(tmp_path: Path) -> None:
    write_gate(tmp_path, [verdict("auc", "ok", "gate ok")])
    write_gate(tmp_path, [])
    assert not (tmp_path / NAME).exists()
    write_gate(tmp_path / "nowhere", [])
