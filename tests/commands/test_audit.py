"""Parts of an audit, and what an audit says that it left out."""

from pathlib import Path

import pandas as pd
import pytest

from fedleak.attacks.recommendation import Direction
from fedleak.commands.audit import _left_out
from fedleak.commands.program import main
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


@pytest.mark.integration
def test_published_attacks_that_were_left_out_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path, rounds=1, users=6)
    recording = Recording(tmp_path / "deltas")
    assert _left_out(recording, chosen_attacks()) == ""
    monkeypatch.setattr(Direction, "for_comparison", True)
    line = "1 published attack was left out that is nowhere ahead of all others in docs/results: --published runs it\n"
    assert _left_out(recording, chosen_attacks()) == line
    assert _left_out(recording, chosen_attacks(published=True)) == ""
