"""The program: versions, commands with a parser of their own, and where each may be started."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from fedleak.commands import guard, program
from fedleak.core.errors import InputError
from fedleak_guard import __version__ as of_the_guard
from fedleak_recorder import __version__ as of_the_recorder
from tests.places import ROOT


def test_versions_are_those_of_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "fedleak"
    expected = {f"fedleak-recorder {of_the_recorder}", f"fedleak-guard {of_the_guard}", f"torch {version('torch')}"}
    assert expected <= set(lines)


def test_the_guard_is_called_with_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["guard", "checks"]) == 0
    assert "allowed-tensors: " in capsys.readouterr().out
    with pytest.raises(SystemExit) as status:
        program.main(["guard", "nonsense"])
    assert status.value.code == 2


def test_without_the_guard_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(guard, "_PACKAGE", "fedleak_guard_that_is_not_there")
    with pytest.raises(InputError, match="the distribution fedleak-guard"):
        guard.run(["checks"])
    assert program.main(["guard", "checks"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedleak: expected the distribution fedleak-guard; found none. Install it")


def test_a_training_gets_what_follows_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fedleak", "train", "fit", "--config", "nowhere.yaml"])
    assert program.main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedleak: ")
    assert "nowhere.yaml" in line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "Commands: demo, audit, "),
        (["audti", "d"], "Did you mean audit?"),
        (["triain"], "Did you mean train?"),
        (["nonsense"], "`fedleak --help`"),
    ],
)
def test_no_such_command(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line


@pytest.mark.integration
@pytest.mark.parametrize("start", [["-m", "fedleak"], [str(ROOT / "attack.py")]])
def test_the_program_has_one_text_however_it_is_started(start: list[str], tmp_path: Path) -> None:
    folder = ROOT if start == ["-m", "fedleak"] else tmp_path
    done = subprocess.run([sys.executable, *start, "--help"], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: fedleak COMMAND ...")
