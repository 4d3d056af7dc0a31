"""The first lines of a page say what was recorded, and who could read it."""

from types import SimpleNamespace
from typing import Any

import pandas as pd

from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import concat, score_table
from fedleak.reports.system import system_lines
from tests.reports.toys import LINES
from tests.wording import lacking


def test_a_table_of_trainings_has_no_line_of_one_recording() -> None:
    scores = [score_table("codebook", {"auc": [0.9, 0.8]}, setting={}, seed=0, victims=[1, 2])]
    scores += [score_table("global-model", {"hr@10": [0.9] * 5}, setting={}, seed=0, victims=range(5))]
    found = AuditResult(Evaluation(scores=concat(scores), lines=dict(LINES)), ["auc"], {"name": "d", "sha256": ""})
    lines = system_lines(found)
    assert {"learner", "rounds", "readers"}.isdisjoint(lines)
    assert (lines["data"], lines["clients"]) == ("d", "2 attacked")
    assert pd.Timestamp(lines["evaluated"]).year >= 2026


def test_readers_are_those_that_the_recording_declares() -> None:
    manifest = SimpleNamespace(learner={"name": "mlp"}, config={"manipulation": "noise"}, releases=[{"clip": 1.0}])
    recording: Any = SimpleNamespace(manifest=manifest, rounds=[0, 4], participants=lambda _: {1: [1, 2]})
    lines = system_lines(AuditResult(Evaluation(), ["auc"], {"name": "d", "sha256": ""}, recording=recording))
    assert (lines["learner"], lines["rounds"]) == ("mlp", "2 recorded")
    readers = ("the server", "sums of updates", "deviated", "(noise)", "clipped or with noise")
    assert not lacking(lines["readers"], *readers)
    recording.participants = lambda _: {}
    alone = system_lines(AuditResult(Evaluation(), ["auc"], {"name": "d", "sha256": ""}, recording=recording))
    assert "the update of each client by itself" in alone["readers"]
