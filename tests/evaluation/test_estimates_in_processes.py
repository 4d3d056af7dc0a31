"""An audit in several processes has the scores of one process, bit for bit, and computes no estimate twice."""

from pathlib import Path
from typing import Any

import pytest

from fedleak.attacks.interactions.baselines import Popularity
from fedleak.attacks.linkability.similarity import Linkability
from fedleak.attacks.recommendation.item_deltas import Direction, RowNorm
from fedleak.attacks.recommendation.matched_filter import MatchedFilter
from fedleak.evaluation import runner
from fedleak.evaluation.auditing import audit
from fedleak.evaluation.evaluate import Share
from fedleak.evaluation.kept_estimates import KeptEstimates
from fedleak.recordings.control import ControlRecording
from fedleak.recordings.recording import Recording
from tests.toys import train

ATTACKS = [RowNorm(), Direction(), Popularity(), MatchedFilter(), Linkability()]


@pytest.mark.integration
@pytest.mark.parametrize(("rounds", "control"), [(1, None), (5, None), (5, "noise")])
def test_two_processes_have_the_scores_of_one(
    rounds: int, control: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path, rounds=rounds, users=8, items=40)
    recording = Recording(tmp_path / "deltas") if control is None else ControlRecording(tmp_path / "deltas", control)
    alone = audit(recording, ATTACKS, describe=False, progress=False)
    kept = KeptEstimates(tmp_path / "kept", recording, ATTACKS, seed=0)
    infer = runner.infer
    monkeypatch.setattr(runner, "infer", lambda *given: pytest.fail(f"computed again: {infer(*given)}"))
    two = audit(recording, ATTACKS, estimates_on_disk=kept, jobs=2, describe=False, progress=False)
    assert two.scores.drop(columns="seconds").equals(alone.scores.drop(columns="seconds"))
    assert kept.made == kept.found == len(kept) > 0


@pytest.mark.parametrize("parts", [1, 3, 7])
def test_every_place_belongs_to_one_part(parts: int) -> None:
    shares = [Share(index, parts) for index in range(parts)]
    assert all(sum(share.has(place) for share in shares) == 1 for place in range(20))
