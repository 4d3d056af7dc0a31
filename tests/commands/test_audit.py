"""Parts of an audit, options that exclude each other, and what an audit says that it left out."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedleak.attacks.recommendation import Direction
from fedleak.commands.audit import AuditOptions, _left_out
from fedleak.commands.program import main
from fedleak.core.errors import InputError
from fedleak.evaluation import runner
from fedleak.evaluation.registry import chosen_attacks
from fedleak.recordings.recording import Recording
from tests.toys import train


@pytest.mark.integration
def test_parts_make_the_estimates_of_an_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDLEAK_KEY", "00" * 32)
    train(tmp_path, rounds=2, users=8, items=40)
    given = ["audit", str(tmp_path / "deltas")]
    assert main([*given, "--out", str(tmp_path / "whole")]) == 0
    parts = [*given, "--out", str(tmp_path / "parts"), "--jobs", "1"]
    for number in range(2):
        assert main([*parts, "--part", f"{number}/2"]) == 0
    assert "without --part" in capsys.readouterr().out
    infer = runner.infer
    monkeypatch.setattr(runner, "infer", lambda *given: pytest.fail(f"computed again: {infer(*given)}"))
    assert main(parts[:-2]) == 0
    whole, joined = (pd.read_csv(tmp_path / name / "scores.csv").drop(columns="seconds") for name in ("whole", "parts"))
    assert joined.equals(whole)
    assert not (tmp_path / "parts" / "unfinished").exists()


def test_a_part_has_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(tmp_path), "--part", "0/2", "--gate", "auc=0.6"]) == 2
    assert "after all parts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"control": "noise", "gate": ["auc=0.6"]}, "--control without --gate"),
        ({"control": "noise", "gate_by_name": {"auc": 0.6}}, "--control without --gate"),
        ({"control": "noise", "reference": "before"}, "--control without --gate"),
        ({"control": "noise", "what_if": "file"}, "--what-if without --control"),
        ({"part": "0/2", "what_if": "file"}, "--part with options of the attacks only"),
        ({"part": "0/2", "formats": ["svg"]}, "--part with options of the attacks only"),
        ({"minutes": 3.0, "part": "0/2"}, "--minutes without"),
        ({"minutes": 3.0, "what_if": "file"}, "--minutes without"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        AuditOptions("d", **options)


def test_an_audit_has_a_time_and_a_folder(tmp_path: Path) -> None:
    deltas = str(tmp_path / "deltas")
    assert (AuditOptions(deltas).time, AuditOptions(deltas).results) == (30.0, tmp_path)
    assert AuditOptions(deltas, slow=True).time is None
    assert AuditOptions(deltas, slow=True, minutes=3.0).time == 3.0
    assert AuditOptions(deltas, what_if="file").results == tmp_path / "what-if"
    assert AuditOptions(deltas, control="noise").results == tmp_path / "control-noise"
    assert AuditOptions(deltas, control="noise", out="o").results == Path("o")


@pytest.mark.integration
def test_published_attacks_that_were_left_out_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path, rounds=1, users=6)
    recording = Recording(tmp_path / "deltas")
    assert _left_out(recording, chosen_attacks()) == ""
    monkeypatch.setattr(Direction, "for_comparison", True)
    line = "1 published attack was left out that is nowhere ahead of all others in docs/results: --published runs it\n"
    assert _left_out(recording, chosen_attacks()) == line
    assert _left_out(recording, chosen_attacks(published=True)) == ""
