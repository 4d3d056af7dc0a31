"""A notebook displays the table of an audit and the figures of its report."""

from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import concat, score_table
from fedleak.reports import show
from tests.reports.toys import LINES


def test_notebook_shows_table_and_figures() -> None:
    rows = [
        score_table(name, {"auc": [mean, mean + 0.05]}, setting={"data": "<d>"}, seed=0, victims=[1, 2])
        for name, mean in (("codebook", 0.9), ("chance", 0.5))
    ]
    evaluation = Evaluation(scores=concat(rows), lines=dict(LINES))
    audited = AuditResult(evaluation, ["auc"], {"name": "<d>", "sha256": "0"})
    assert "client 1" not in show(audited)._repr_html_()
    page = show(audited, persons=True)
    text = page._repr_html_()
    assert text.count("<svg") == len(page.figures) == 1
    assert "<table" in text
    assert "&lt;d&gt;: auc by attack with 95% intervals; a faint dot is a client; further right is more leakage" in text


def test_nothing_scored_has_no_figures() -> None:
    assert show(AuditResult(Evaluation(), ["auc"], {"name": "d", "sha256": "0"})).figures == []
