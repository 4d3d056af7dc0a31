"""The tables of checks and of the guardrail, on generated lists."""

from pathlib import Path

import pytest

from tests.experiments import tables
from tests.experiments.tables import Result

TABLE = """
experiment: t
data: [synthetic-letor]
rankers: [linear]
click_models: [informational]
queries: [8]
epsilons: [inf]
users: 60
attacks: {codebook: {}, chance: {}}
"""


def reproduce(folder: Path, text: str) -> dict[tuple[str, str, str], Result]:
    assert tables.reproduce(folder, TABLE + text) == 0
    results = tables.read(folder / "out")
    return {(r.attack, str(r.setting.get("guardrail", r.setting["manipulation"])), r.metric): r for r in results}


def test_checks_beside_attacks_and_a_map_of_the_updates(tmp_path: Path) -> None:
    text = "kind: manipulation-checks\nmetrics: [flagged, accuracy, auc]\n"
    text += "manipulations: {none: [chance], codebook: [codebook]}"
    found = reproduce(tmp_path, text)
    assert found["equal-scores", "codebook", "flagged"].mean == 1
    assert found["codebook", "codebook", "auc"].mean == pytest.approx(1, abs=0.02)
    honest = found["equal-scores", "none", "flagged"]
    assert honest.n == 75
    assert honest.mean < 0.15
    assert 0 <= found["updates-forest", "codebook", "accuracy"].mean <= 1
    assert ("updates-forest", "none", "accuracy") not in found
    page = (tmp_path / "out/report.html").read_text()
    assert "RAIFLE&#39;s figure 7" in page
    assert "ROC curve" not in page
    assert reproduce(tmp_path, text) == found
    assert (tmp_path / "out/report.html").read_text().count("<svg") == page.count("<svg")


def test_the_guardrail_holds_back_what_the_server_would_read(tmp_path: Path) -> None:
    text = "kind: guardrail\nmetrics: [held-back, auc]\nmanipulations: {codebook: [codebook]}\nguardrails: [inf, 0.6]\n"
    text += "own_attacks: [codebook]"
    found = reproduce(tmp_path, text)
    assert (found["guardrail", "inf", "held-back"].mean, found["guardrail", "0.6", "held-back"].mean) == (0, 1)
    assert found["codebook", "inf", "auc"].mean == pytest.approx(1, abs=0.02)
    assert found["codebook", "0.6", "auc"].n == 0
