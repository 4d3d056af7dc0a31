"""Files of .github: the workflow runs what the Makefile has, and forms are of the form that GitHub reads."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.places import ROOT

pytestmark = pytest.mark.inventory

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
FIELDS = {"markdown": {"value"}, "input": {"label"}, "textarea": {"label"}, "dropdown": {"label", "options"}}
"""Types of fields of a form, with the attributes that each must have."""


def content(path: Path) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return made


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def asked_targets(workflow: dict[str, Any]) -> set[str]:
    """Targets of all calls of make, with those that a matrix lists under `target`."""
    targets = set[str]()
    for job in workflow["jobs"].values():
        of_matrix = job.get("strategy", {}).get("matrix", {}).get("target", [])
        commands = "\n".join(step.get("run", "") for step in job["steps"])
        commands = commands.replace("${{ matrix.target }}", " ".join(of_matrix))
        calls = re.findall(r"\bmake\b([^\n;&|]*)", re.sub(r"\$\{\{.*?\}\}", "X", commands))
        targets |= {word for call in calls for word in call.split() if "=" not in word and not word.startswith("-")}
    return targets


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_asks_make_for_targets_that_exist(path: Path) -> None:
    asked = asked_targets(content(path))
    assert asked
    assert asked <= TARGETS


def test_all_targets_that_a_workflow_asks_for_are_found() -> None:
    job = {
        "strategy": {"matrix": {"target": ["none", "docs"]}},
        "steps": [
            {"run": "make PYTHON3=python${{ matrix.python }} ${{ matrix.target }}"},
            {"run": "true && make -k lint\nmake quick"},
            {"uses": "make test"},
        ],
    }
    assert asked_targets({"jobs": {"a": job}}) == {"none", "docs", "lint", "quick"}
    assert "none" not in TARGETS


def test_tests_documentation_and_release_are_run() -> None:
    asked = {target for path in WORKFLOWS for target in asked_targets(content(path))}
    assert {"test", "docs", "release"} <= asked


def test_every_python_of_the_project_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    first, end = map(int, re.findall(r"3\.(\d+)", project["requires-python"]))
    versions = content(ROOT / ".github/workflows/test.yml")["jobs"]["make"]["strategy"]["matrix"]["python"]
    assert versions == [f"3.{minor}" for minor in range(first, end)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_a_workflow_may_only_read(path: Path) -> None:
    workflow = content(path)
    assert workflow["permissions"] == {"contents": "read"}
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", name)] == []
    # The version next to it is for the reader.
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert [line for line in lines if not re.search(r"# v\d+\.\d+\.\d+$", line)] == []


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_has_what_github_needs(path: Path) -> None:
    form = content(path)
    assert {"name", "description", "body"} <= form.keys()
    for field in form["body"]:
        assert FIELDS[field["type"]] <= field["attributes"].keys()
        options = field["attributes"].get("options", ["some"])
        assert all(isinstance(option, str) for option in options), "YAML reads yes and no as truth values"
    identities = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(identities) == len(set(identities)) > 0
