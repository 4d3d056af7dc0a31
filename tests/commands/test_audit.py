"""Parts of an audit: estimates that machines write into one folder, and the audit that reads them back."""

from pathlib import Path

import pandas as pd
import pytest

from fedleak.commands.program import main
from fedleak.evaluation import runner
from tests.toys import train

pytestmark = pytest.mark.integration


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
