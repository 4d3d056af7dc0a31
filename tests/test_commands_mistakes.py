"""Mistakes on the command lines: one line that names what is wrong and what to do, and status 2."""

import json
import shutil
from pathlib import Path

import pytest

from fedleak.commands import program as fedleak
from fedleak.commands import train
from fedleak.core.errors import InputError
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.scores import AttackInfo, score_table
from fedleak.evaluation.stored_run import store_run
from fedleak.recordings.recording import Recording
from tests.places import CONFIGS
from tests.reports.toys import run
from tests.watch_toys import LIMIT, recorder, write_round

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


@pytest.fixture
def deltas(tmp_path: Path) -> Path:
    """A recording of two rounds."""
    with recorder(tmp_path / "run" / "deltas") as opened:
        write_round(opened, 0)
        write_round(opened, 1)
    return tmp_path / "run" / "deltas"


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The line with which a command refuses its options."""
    assert status("fedleak", *args) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_a_folder_of_several_recordings_names_all(deltas: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a", "b", "c"]
    for name in names:
        shutil.copytree(deltas, deltas.parent / "several" / name / "deltas")
    below = [str(deltas.parent / "several" / name / "deltas") for name in names]
    line = refused(capsys, "audit", str(deltas.parent / "several"))
    assert line.endswith(f"Did you mean {' or '.join(below)}?")


def test_a_lost_journal_is_no_training_that_ended(deltas: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (deltas / "journal.jsonl").unlink()
    line = refused(capsys, "audit", str(deltas))
    assert "The journal is missing, as rounds/ holds files of 2 rounds: copy journal.jsonl" in line
    (deltas / "rounds" / "000001-0000.safetensors").unlink()
    assert "If there is none: The training ended before its first round" in refused(capsys, "audit", str(deltas))
    (deltas / "rounds" / "000000-0000.safetensors").unlink()
    assert "The training ended before its first round" in refused(capsys, "audit", str(deltas))


@pytest.mark.usefixtures("without_figures")
def test_a_recording_without_truth_says_what_still_works(deltas: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(deltas / "truth")
    assert status("fedleak", "audit", str(deltas), "--only", "release-check") == 0
    said = capsys.readouterr().out
    assert f"{deltas} has no truth/: attacks whose answers are compared with the true ones are not scored" in said
    assert "the check of declared noise" in said


@pytest.mark.parametrize("words", [("audit",), ("run", "--attack", "release-check"), ("watch", "--gate", LIMIT)])
def test_results_go_neither_into_the_root_nor_into_a_recording(
    words: tuple[str, ...], deltas: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, *options = words
    for place in ("/", str(deltas)):
        line = refused(capsys, name, str(deltas), *options, "--out", place)
        assert line.startswith("fedleak: expected a folder for results")
    assert not (deltas / "unfinished").exists()


@pytest.mark.usefixtures("without_figures")
def test_a_reference_of_other_data_is_refused_before_attacks_run(
    deltas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = score_table("release-check", {"findings": [0.0, 1.0]}, setting={"data": "d"}, seed=0, victims=[1, 2])
    lines = {"release-check": AttackInfo(role="ours", family="declared-privacy", question="q")}
    store_run(tmp_path / "before", run(), Evaluation(scores=scores, lines=lines), {"name": "d", "sha256": "0"})
    monkeypatch.setattr("fedleak.evaluation.auditing.audit", lambda *_, **__: pytest.fail("it attacked"))
    line = refused(capsys, "audit", str(deltas), "--reference", str(tmp_path / "before"))
    assert "; found before, a run of d. Give a run of the same data set" in line


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
