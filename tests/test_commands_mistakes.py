"""Mistakes on the command lines: one line that names what is wrong and what to do, and status 2."""

import json
from pathlib import Path

import pytest

from fedleak.commands import program as fedleak
from fedleak.commands import train
from fedleak.core.errors import InputError
from fedleak.recordings.recording import Recording
from tests.places import CONFIGS

TRAINING = ("--config", str(CONFIGS / "train" / "fncf_synthetic.yaml"))


def status(program: str, *args: str) -> object:
    try:
        return (fedleak.main if program == "fedleak" else train.run)(list(args))
    except SystemExit as error:
        return error.code


@pytest.mark.parametrize(
    ("program", "args", "word"),
    [
        ("fedleak", ("reproduce", "raifle_tabel5"), "raifle_table5"),
        ("fedleak", ("reproduce", str(CONFIGS / "train" / "decaf_digits.yaml")), "fedleak train fit"),
        ("train", ("fit", "--config", str(CONFIGS / "paper/raifle/raifle_table5.yaml")), "fedleak reproduce"),
        ("train", ("fit", *TRAINING, "--model.defenses", "[{class_path: LocalDp}]"), "LocalDP"),
        ("train", ("fit", *TRAINING, "--trainer.max_epochs", "2"), "max_steps"),
        ("fedleak", ("audit", "--deltas", "runs"), "fedleak audit runs"),
        ("fedleak", ("run", "--attack", "direction", "--attack.foo", "3", "runs"), "no arguments"),
        ("fedleak", ("report", "nowhere"), "results.json"),
    ],
)
def test_mistake_gets_one_line_with_the_way_out(
    capsys: pytest.CaptureFixture[str], program: str, args: tuple[str, ...], word: str
) -> None:
    assert status(program, *args) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("fedleak: ")
    assert word in line
    assert "Errno" not in line
    assert "Expected a str" not in line


def test_table_is_found_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("fedleak", "reproduce", "raifle_table5", "--dry-run") == 0
    assert "# " in capsys.readouterr().out


def test_dump_manifest_without_fields_names_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"rounds": []}))
    assert status("fedleak", "convert", str(path), "--out", str(tmp_path / "out")) == 2
    line = capsys.readouterr().err
    assert "__init__" not in line
    assert "the keys" in line


def test_parent_of_a_recording_names_the_recording(tmp_path: Path) -> None:
    (tmp_path / "deltas").mkdir()
    (tmp_path / "deltas" / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="deltas"):
        Recording(tmp_path)
