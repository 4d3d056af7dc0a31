"""A run leaves its files, says why attacks failed, and joins others'."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedleak.core.provenance import source_hash
from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.cause import Cause
from fedleak.evaluation.gate import Verdict
from fedleak.evaluation.labels import Label
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.runner import Evaluation, joined
from fedleak.evaluation.scores import concat, from_records, score_table
from fedleak.evaluation.stored_run import read_results
from fedleak.reports.join import join_runs
from fedleak.reports.write_run import combine, write_run
from tests.reports.toys import LINES


def audited(evaluation: Evaluation, **changed: Any) -> AuditResult:
    return dataclasses.replace(AuditResult(evaluation, ["auc"], {"name": "d", "sha256": "0"}, seconds=1.0), **changed)


def evaluation(**setting: Any) -> Evaluation:
    rows = [
        score_table(
            name,
            {"auc": [mean, mean + 0.1], "f1": [0.5, 0.6]},
            setting={"data": "d", **setting},
            seed=0,
            victims=[1, 2],
        )
        for name, mean in (("codebook", 0.8), ("chance", 0.45))
    ]
    return Evaluation(scores=concat(rows), lines=dict(LINES), missing={"decaf": Reason("lacking", ("learner",))})


def test_a_run_leaves_results_scores_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[Any] = []
    cause = Cause("noise", "noise is most of it", {"share": 0.9}, None, "codebook", {"data": "d"}, "auc")
    verdict = Verdict("auc", 0.6, "codebook", 0.85, 0.8, 0.9, 2, "failed", "GATE FAILED: codebook")
    found = audited(evaluation())
    found.causes = [cause]
    run = write_run(
        found,
        directory=tmp_path,
        gate=lambda *_: [verdict],
        shows=[lambda results, figures: shown.append((len(results), len(figures)))],
    )
    assert set(run.results["metric"]) == {"auc"}
    assert run.results["paper"].isna().all()
    scores = pd.read_csv(tmp_path / "scores.csv")
    assert len(scores) == 8  # every metric, one row per victim
    assert {"attack", "setting.data", "seed", "round", "victim", "metric", "value"} <= set(scores)
    content = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [(one["attack"], one["against"]) for one in content["differences"]] == [("codebook", "chance")]
    assert content["not_run"] == {"decaf": "the recording lacks learner"}
    assert content["gate"] == [dataclasses.asdict(verdict)]
    page, printed = (tmp_path / "report.html").read_text(encoding="utf-8"), capsys.readouterr().out
    for text in ("noise is most of it", "decaf could not run", "GATE FAILED: codebook", "what it clicked"):
        assert text in page
    assert "why attacks failed:\n  codebook: noise is most of it." in printed
    assert shown == [(2, page.count("<figure ") - 1)]  # the picture next to the questions is of the page only
    assert not (tmp_path / "compositions.csv").exists()


def test_the_hash_of_data_may_be_unknown(tmp_path: Path) -> None:
    write_run(audited(evaluation(), data={"name": "own"}), directory=tmp_path)
    assert read_results(tmp_path).data == {"name": "own", "sha256": ""}
    assert "<code>sha256" not in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_figures")
def test_compositions_are_left_as_a_table_with_persons(tmp_path: Path) -> None:
    found = evaluation()
    profile = {"attack": "codebook", "seed": 0, "round": 0, "victim": 1, "class": [0, 1], "setting.data": "d"}
    found.profiles = pd.DataFrame(
        {**profile, "true": [0.4, 0.6], "inferred": [0.5, 0.5], "low": [0.4, 0.4], "high": 0.6}
    )
    write_run(audited(found), directory=tmp_path, experiment="e", persons=True)
    assert pd.read_csv(tmp_path / "compositions.csv")["true"].tolist() == [0.4, 0.6]
    write_run(audited(found), directory=tmp_path, experiment="e")
    assert not (tmp_path / "compositions.csv").exists()


@pytest.mark.usefixtures("without_figures")
def test_an_attacks_own_table_is_left_and_shown(tmp_path: Path) -> None:
    found = evaluation()
    rows = [{"check": "scale", "measured": 0.125, "tied": True}, {"check": "law", "clients": 3}]
    found.details = {"codebook": from_records(rows)}
    write_run(audited(found), directory=tmp_path / "one", experiment="e")
    whole = [{"check": "scale", "measured": 0.125, "tied": True, "clients": None}]
    whole += [{"check": "law", "measured": None, "tied": None, "clients": 3}]
    assert read_results(tmp_path / "one").details == {"codebook": whole}
    page = (tmp_path / "one" / "report.html").read_text(encoding="utf-8")
    assert '<td>scale</td><td class="number">0.125</td><td>yes</td>' in page
    write_run(audited(evaluation()), directory=tmp_path / "two", experiment="e")
    assert "details" not in json.loads((tmp_path / "two" / "results.json").read_text(encoding="utf-8"))
    both = join_runs([tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    assert both.details == {"codebook in e": whole}


def test_details_of_several_views_and_cells_are_joined() -> None:
    parts = [evaluation(epsilon=epsilon) for epsilon in (1, 1, 2)]
    for part in parts:
        part.details = {"check": from_records([{"check": "scale"}])}
    assert len(joined(parts).details["check"]) == 3
    of_cells = combine(parts)
    counts = {label: len(table) for label, table in of_cells.details.items()}
    assert counts == {"check (d, epsilon 1)": 2, "check (d, epsilon 2)": 1}
    assert of_cells.label("check (d, epsilon 2)") == Label("check", "d, epsilon 2")


def test_curves_of_different_settings_stay_apart() -> None:
    curve = np.linspace(0, 1, 101)
    cells = [evaluation(epsilon=epsilon) for epsilon in (1, "inf", "inf")]
    for cell in cells:
        cell.roc = {"codebook": (curve, 1)}
    roc = combine(cells).roc
    assert {label: count for label, (_, count) in roc.items()} == {
        "codebook (d, epsilon 1)": 1,
        "codebook (d, epsilon inf)": 2,
    }


@pytest.mark.parametrize("room", ["attacks", "core", "modules"])
def test_every_room_with_source_counts_for_the_hash(room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rooms of additions, which are links in a checkout, too."""
    read = Path.read_bytes
    source_hash.cache_clear()
    before = source_hash()
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + (b"#" if path.parent.name == room else b""))
    source_hash.cache_clear()
    assert len(before) == 64
    assert source_hash() != before
    source_hash.cache_clear()
