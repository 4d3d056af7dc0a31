"""What docs/site/guard.md shows is what its policy, its program and its commands print."""

import re
import runpy
from pathlib import Path

import pytest

from fedleak_guard.command import main
from tests.places import ROOT

PAGE = (ROOT / "docs/site/guard.md").read_text(encoding="utf-8")
HEAD = re.compile(r"head \w{64}")
"""The head of a log, which differs with the time."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the policy and the program of the page."""
    (tmp_path / "policy.yaml").write_text(blocks("yaml")[0])
    (tmp_path / "try_guard.py").write_text(blocks("python")[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_policy_has_the_lines_of_the_page(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-policy", "policy.yaml"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in blocks("text")[0].splitlines() if line not in printed] == []


def test_a_wrong_key_is_refused_as_on_the_page(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = site / "policy.yaml"
    policy.write_text(policy.read_text().replace("max_norm", "max_nrm"))
    assert main(["check-policy", "policy.yaml"]) == 2
    assert blocks("text")[1].strip() in capsys.readouterr().err


def test_the_messages_leave_or_stay_as_on_the_page(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(site / "try_guard.py"))
    assert capsys.readouterr().out == blocks("text")[2]
    assert main(["verify", "evidence/log.jsonl"]) == 0
    assert HEAD.sub("head", capsys.readouterr().out) == HEAD.sub("head", blocks("text")[3])


def test_a_privacy_file_is_complete_or_not_as_on_the_page(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "local").mkdir()
    privacy = blocks("json")[0].replace("/etc/fedleak/policy.yaml", str(site / "policy.yaml"))
    (site / "local/privacy.json").write_text(privacy)
    assert main(["check-privacy", "local/privacy.json"]) == 0
    assert capsys.readouterr().out == blocks("text")[4]
    (site / "local/privacy.json").write_text(privacy.replace("EgressWatch", "Other"))
    assert main(["check-privacy", "local/privacy.json"]) == 2
    assert capsys.readouterr().err == blocks("text")[5]
