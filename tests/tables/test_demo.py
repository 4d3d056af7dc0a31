"""The demo shows a client's class shares, what local DP changes, and one report."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from fedleak.commands import program
from fedleak.core.errors import InputError
from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.runner import Evaluation
from fedleak.tables.demo import Outcome, first_client, shares, systems, trained
from tests.frames import cell, results
from tests.places import ROOT

DIGITS, PRIVATE, _ = systems()


def test_a_folder_that_is_no_demo_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(InputError, match="demo"):
        trained(DIGITS, tmp_path)
    assert (tmp_path / "mine").is_file()


def test_shares_of_the_first_client_by_the_best_attack() -> None:
    rows = [("weak", 7, 0, 0.75, 0.5), ("best", 7, 0, 0.75, 0.7), ("best", 7, 1, 0.25, 0.3), ("best", 9, 0, 0, 0)]
    evaluation = Evaluation(profiles=pd.DataFrame(rows, columns=["attack", "victim", "class", "true", "inferred"]))
    audited = AuditResult(evaluation, ["l1"], {})
    audited.__dict__["results"] = results(cell("weak", "l1", 0.5, role="ours"), cell("best", "l1", 0.1, role="ours"))
    outcome = Outcome(DIGITS, {}, audited)
    head, first, second = shares(outcome, first_client(outcome))
    assert "what the server infers" in head
    assert outcome.attack == "best"
    assert first.split() == ["0", "0.75", "█" * 18, "0.70", "█" * 17]
    assert second.split() == ["1", "0.25", "█" * 6, "0.30", "█" * 7]


@pytest.mark.integration
def test_the_demo_shows_the_leak_and_what_the_defence_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["demo", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    whole = json.loads((tmp_path / "results.json").read_text())["results"]
    run: dict[str, dict[str, float]] = {name: {} for name in (DIGITS.name, PRIVATE.name)}
    for row in whole:
        if row["metric"] == "l1":
            run[row["setting"]["run"]][row["attack"]] = row["mean"]
    plain, private = run[DIGITS.name], run[PRIVATE.name]
    assert min(plain["exact-counts"], plain["closed-form"]) < 0.1 < plain["equal-counts"]
    assert min(value for name, value in private.items() if name != "random-guess") > 0.4
    (accuracy,) = (float(line.split()[-1]) for line in said if line.split()[:1] == [DIGITS.name])
    assert accuracy > 0.8
    assert sum("█" in line for line in said) >= 4
    assert said[-1].startswith("next: fedleak convert MANIFEST.yaml")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in ("digits-local-dp", "clicks", "<svg"))


@pytest.mark.integration
def test_sigterm_ends_the_demo(tmp_path: Path) -> None:
    line = [sys.executable, "-u", "attack.py", "demo", "--out", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for said in process.stdout:
            if said.startswith("1 of 3"):
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
