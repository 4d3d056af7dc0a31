"""An audit in several processes has the scores of one process, bit for bit, and computes no estimate twice."""

from pathlib import Path
from typing import Any

import pytest

from fedleak.attacks.interactions.baselines import Popularity
from fedleak.attacks.linkability.similarity import Linkability
from fedleak.attacks.recommendation.item_deltas import Direction, RowNorm
from fedleak.attacks.recommendation.matched_filter import MatchedFilter
from fedleak.evaluation import runner
from fedleak.evaluation.audit_plan import AuditPlan, Job
from fedleak.evaluation.auditing import run_audit
from fedleak.evaluation.engines.processes import Processes
from fedleak.evaluation.estimate_jobs import in_batches
from fedleak.evaluation.estimate_store import EstimateStore
from fedleak.evaluation.evaluate import jobs_of
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
    plan = AuditPlan(recording=recording, attacks=ATTACKS, describe=False)
    alone = run_audit(plan, progress=False)
    kept = EstimateStore(tmp_path / "kept", plan)
    infer = runner.infer
    monkeypatch.setattr(runner, "infer", lambda *given: pytest.fail(f"computed again: {infer(*given)}"))
    two = run_audit(plan, engine=Processes(jobs=2), store=kept, progress=False)
    assert two.scores.drop(columns="seconds").equals(alone.scores.drop(columns="seconds"))
    assert kept.made == kept.found == len(kept) > 0


def _jobs(views: int, attacks: int) -> list[Job]:
    return [Job(f"f/{attack}", 0, view, 4, "seconds", ()) for view in range(views) for attack in range(attacks)]


@pytest.mark.parametrize(("views", "most"), [(20, 3), (20, 20), (2, 5), (1, 100)])
def test_every_job_is_in_one_batch(views: int, most: int) -> None:
    jobs = _jobs(views, attacks=3)
    batches = in_batches(jobs, most=most)
    assert len(batches) == min(most, 3 * views if views < most else views)
    assert sorted(key for batch in batches for key in batch) == sorted(job.key for job in jobs)


def test_attacks_on_one_view_are_in_one_batch_where_there_are_enough_views() -> None:
    for batch in in_batches(_jobs(views=9, attacks=3), most=4):
        views = {view for _, _, view in batch}
        assert len(batch) == 3 * len(views)


def test_no_job_is_no_batch() -> None:
    assert in_batches([], most=4) == []


@pytest.mark.integration
def test_the_jobs_of_a_plan_are_its_attacks_on_its_views(tmp_path: Path) -> None:
    train(tmp_path, rounds=2, users=8, items=40)
    limited = AuditPlan(
        recording=Recording(tmp_path / "deltas"),
        attacks=[Direction(), Linkability()],
        limits={"direction": 3},
        victims_per_view=2,
    )
    jobs = list(jobs_of(limited))
    assert [job.attack for job in jobs if job.round is None] == ["linkability/linkability"]
    of_rounds = [job for job in jobs if job.round is not None]
    assert {job.attack for job in of_rounds} == {"recommendation/direction"}
    assert sum(job.victims for job in of_rounds if job.round == 0) <= 3
    assert all(job.needs and job.cost for job in of_rounds)
    assert len({job.key for job in jobs}) == len(jobs)
