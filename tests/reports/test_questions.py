"""Results stand with the question that they answer, and the metric that judges attacks comes first."""

from evaluation.scores import AttackInfo
from reports.questions import by_question, metrics_of
from tests.reports.toys import LINES, cell, table


def test_bounds_stand_with_the_questions_whose_metrics_they_have() -> None:
    lines = {**LINES, "link": AttackInfo(role="ours", question="other", tells="who sent it")}
    rows = [cell("codebook", 0.9), cell("bound", 0.95), cell("link", 0.8, metric="ap"), cell("chance", 0.5)]
    found = by_question(table(*rows, cell("none", 0.3, metric="hr@10"), lines=lines))
    assert [(title, own["attack"].tolist()) for title, own in found] == [
        ("Can the server infer what it clicked?", ["codebook", "bound", "chance"]),
        ("Can the server infer who sent it?", ["link"]),
        ("Bounds and models", ["none"]),
    ]


def test_results_without_questions_are_one_section() -> None:
    ((title, rows),) = by_question(table(cell("x", 0.9), cell("y", 0.8), lines={"x": AttackInfo(role="ours")}))
    assert (title, len(rows)) == ("Results", 2)


def test_the_metric_that_judges_comes_first() -> None:
    rows = [cell("codebook", 0.9, metric=name) for name in ("own", "null_false_positive", "l2", "l1", "f1")]
    assert metrics_of(table(*rows)) == ["l1", "f1", "l2", "null_false_positive", "own"]
