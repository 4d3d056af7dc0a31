"""The check of privacy.json: odd content is a fault in a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedleak_guard.privacy_json import CLASS, WATCH, privacy_faults
from tests.guard_toys import write_policy
from tests.wording import lacking


def faults(folder: Path, arguments: Any) -> list[str]:
    entry = {"path": CLASS, "direction": "out", "args": arguments}
    scope = {"name": "private", "task_result_filters": [entry]}
    path = folder / "privacy.json"
    path.write_text(json.dumps({"scopes": [scope], "default_scope": "private", "components": [{"path": WATCH}]}))
    return privacy_faults(path)


@pytest.mark.parametrize("arguments", [None, "policy", 3, [], ["policy"], {}, {"policy": 3}, {"policy": None}])
def test_arguments_without_a_policy_are_a_fault(tmp_path: Path, arguments: Any) -> None:
    (fault,) = faults(tmp_path, arguments)
    assert not lacking(fault, '"private"', CLASS, "no policy")


def test_arguments_with_a_policy_are_none(tmp_path: Path) -> None:
    assert faults(tmp_path, {"policy": str(write_policy(tmp_path))}) == []
    assert len(faults(tmp_path, {"policy": str(tmp_path / "none.yaml")})) == 1


def test_a_scope_that_is_no_object_is_a_fault(tmp_path: Path) -> None:
    arguments = {"policy": str(write_policy(tmp_path))}
    scope = {"name": "private", "task_result_filters": [{"path": CLASS, "direction": "out", "args": arguments}]}
    watch = {"id": "guard", "path": WATCH, "args": arguments}
    path = tmp_path / "privacy.json"
    for scopes, number in (([scope], 0), ([scope, "public"], 1)):
        path.write_text(json.dumps({"scopes": scopes, "default_scope": "private", "components": [watch]}))
        assert len(privacy_faults(path)) == number


@pytest.mark.parametrize("odd", ["text", None, 3, [], {"direction": "out"}, {"path": ["deep"]}])
def test_a_filter_that_is_none_is_a_fault(odd: Any, tmp_path: Path) -> None:
    arguments = {"policy": str(write_policy(tmp_path))}
    check = {"path": CLASS, "direction": "out", "args": arguments}
    content = {
        "scopes": [{"name": "private", "task_result_filters": [odd, check]}],
        "default_scope": "private",
        "components": [{"id": "guard", "path": WATCH, "args": arguments}],
    }
    path = tmp_path / "privacy.json"
    path.write_text(json.dumps(content))
    (fault,) = privacy_faults(path)
    assert not lacking(fault, '"private"', "without a path")
