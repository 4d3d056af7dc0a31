"""The page explains the metrics that it shows, and no others."""

from pathlib import Path

import pytest

from reports.html import write_report
from reports.results import Result, Run


@pytest.mark.parametrize(("metric", "said", "unsaid"), [("auc", "AUC is", "L1 is"), ("l1", "L1 is", "AUC is")])
def test_only_the_metrics_that_are_shown_are_explained(tmp_path: Path, metric: str, said: str, unsaid: str) -> None:
    result = Result("some-attack", {"data": "digits"}, metric, 0.7, 0.1, (0.6, 0.8), 10, 0.1)
    run = Run("test", "", 0, None, {}, {"name": "digits", "sha256": ""}, "", 1.0, [result])
    page = write_report(tmp_path, run, threat_models={}).read_text(encoding="utf-8")
    assert said in page
    assert unsaid not in page
