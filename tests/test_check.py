"""``make check`` finds the tests of a file, and says what failed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import check
from tests.check import find_tests, main, module_of, source_of, steps_for
from tests.places import ROOT


def names(file: str) -> list[str]:
    return [path.relative_to(ROOT / "tests").as_posix() for path in find_tests(ROOT / file)]


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("fedleak/core/view.py", ["core/test_view.py"]),
        ("attacks/composition/rlu.py", ["attacks/composition/test_rlu.py", "attacks/composition/test_every_attack.py"]),
        ("attacks/composition/decaf.py", ["attacks/test_every_argument.py"]),
        ("docs/tools/included_page.py", ["docs/tools/test_included_page.py"]),
        ("recorder/fedleak_recorder/urls.py", ["recorder/fedleak_recorder/test_remote.py"]),
        ("datamodules/recommendation/steam.py", ["datamodules/recommendation/test_base.py"]),
        ("tests/core/test_view.py", ["core/test_view.py"]),
    ],
)
def test_the_tests_of_a_file_are_found(file: str, tests: list[str]) -> None:
    assert {*tests} <= {*names(file)}


def test_a_test_of_a_longer_name_is_not_of_the_file_with_the_shorter_one() -> None:
    assert "attacks/composition/test_decaf_match.py" not in names("attacks/composition/decaf.py")
    assert source_of("core/test_view_of_nothing") == ROOT / "fedleak" / "core" / "view.py"


def test_a_file_without_a_test_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "all_test_files", list)
    assert find_tests(ROOT / "fedleak" / "core" / "view.py") == []


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("attacks/words/frequencies.py", "fedleak.attacks.words.frequencies"),
        ("fedleak/core/view.py", "fedleak.core.view"),
        ("fedleak/core/__init__.py", "fedleak.core"),
        ("recorder/fedleak_recorder/urls.py", "fedleak_recorder.urls"),
    ],
)
def test_a_file_has_the_name_under_which_it_is_imported(file: str, module: str) -> None:
    assert module_of(ROOT / file) == module


def test_a_file_of_code_gets_all_steps_and_a_document_no_linter() -> None:
    steps = steps_for([ROOT / "attacks" / "composition" / "rlu.py"])
    assert list(steps) == ["tests", "inventory", "ruff", "format", "mypy", "imports"]
    assert steps["mypy"][-1] == "fedleak/attacks/composition/rlu.py"
    assert "tests/docs/tools/test_included_page.py" in steps["tests"]
    assert list(steps_for([ROOT / "README.md"])) == ["inventory"]


@pytest.mark.parametrize("file", ["fedleak/core/nothing.py", "/", ""])
def test_a_file_that_is_not_there_is_refused(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file] if file else []) == 2
    assert 'make check FILES="' in capsys.readouterr().out


def test_the_steps_are_run_and_the_failed_ones_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, int("mypy" in command), stdout="what mypy says", stderr="")

    monkeypatch.setattr("tests.check.subprocess.run", run)
    monkeypatch.setattr(check, "find_tests", lambda _: [ROOT / "tests" / "core" / "test_view.py"])
    assert main([str(ROOT / "fedleak" / "core" / "view.py")]) == 1
    said = capsys.readouterr().out
    assert said.count("what mypy says") == 1
    assert said.endswith("failed: mypy\n")


@pytest.mark.integration
def test_a_program_says_what_is_wrong_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.check", "nothing.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout.startswith("expected files of the checkout")
