"""An audit keeps its time: what does not fit is named with its cost, and the other results do not change."""

import time
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest
import torch

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.core.attack import Attack
from fedleak.core.progress import with_progress
from fedleak.core.view import RoundView
from fedleak.evaluation.attack_bar import AttackBar
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import run_audit
from fedleak.evaluation.estimate_store import EstimateStore
from fedleak.evaluation.evaluate import evaluate_recording
from fedleak.evaluation.execution import Execution
from fedleak.evaluation.scores import AttackInfo
from fedleak.evaluation.time_budget import OutOfTimeError, TimeBudget, time_shares
from fedleak.recordings.recording import Recording
from tests.toys import train


class Patient(Direction):
    """Direction, with a clock that an attack's steps move."""

    name, cost = "patient", "seconds per victim"
    step: ClassVar[float] = 10.0

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        for _ in with_progress(range(10)):
            _Clock.now += self.step
        return super().run(view, generator=generator)


class _Clock:
    now = 0.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    _Clock.now = 1000.0
    monkeypatch.setattr(time, "time", lambda: _Clock.now)
    monkeypatch.setattr(time, "perf_counter", lambda: _Clock.now)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    train(folder, rounds=2)
    return folder / "deltas"


def _plan(recorded: Path, *attacks: Attack, minutes: float | None = None) -> AuditPlan:
    return AuditPlan(
        recording=Recording(recorded),
        attacks=attacks,
        setting={},
        slow="all",
        minutes=minutes,
        describe=False,
        check_learner=False,
    )


@pytest.mark.integration
def test_an_attack_that_does_not_fit_is_named_with_its_time_and_has_no_rows(recorded: Path) -> None:
    fast, slow = Direction(), Patient()
    found = run_audit(_plan(recorded, slow, fast, minutes=3), progress=False)
    alone = run_audit(_plan(recorded, fast), progress=False)
    assert set(found.scores["attack"]) == set(alone.scores["attack"]) == {"direction"}
    own = [name for name in found.scores if name != "seconds"]
    pd.testing.assert_frame_equal(found.scores[own], alone.scores[own])
    assert {name: str(reason) for name, reason in found.missing.items()} == {
        "patient": "it does not fit into --minutes 3: it needs 200 seconds for all clients; --minutes 5 has room for it"
    }
    with_room = run_audit(_plan(recorded, slow, fast, minutes=5), progress=False)
    assert not with_room.missing
    assert set(with_room.scores["attack"]) == {"direction", "patient"}


@pytest.mark.integration
def test_one_that_slows_down_is_named_with_the_time_of_all_clients(recorded: Path) -> None:
    class Slower(Patient):
        def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
            _Clock.now += 100  # says nothing of its progress
            return Direction.run(self, view, generator=generator)

    found = evaluate_recording(_plan(recorded, Slower()), Execution(budget=TimeBudget(3), progress=False))
    assert found.scores.empty
    (reason,) = found.missing.values()
    assert "it needs 200 seconds for all clients" in str(reason)


@pytest.mark.integration
def test_when_nothing_is_left_the_declared_cost_is_said(recorded: Path) -> None:
    budget = TimeBudget(1)
    _Clock.now += 60
    found = evaluate_recording(_plan(recorded, Direction()), Execution(budget=budget, progress=False))
    assert found.scores.empty
    (reason,) = found.missing.values()
    assert (
        str(reason)
        == f"it does not fit into --minutes 1: nothing is left, and its cost is {Direction.cost}; add minutes"
    )


@pytest.mark.integration
def test_what_another_process_has_estimated_needs_no_time(recorded: Path, tmp_path: Path) -> None:
    plan = _plan(recorded, Direction())
    store = EstimateStore(tmp_path / "kept", plan)
    evaluate_recording(plan, Execution(store=store, progress=False))
    budget = TimeBudget(1)
    _Clock.now += 60
    found = evaluate_recording(plan, Execution(store=store, budget=budget, progress=False))
    assert not found.missing
    assert len(found.scores)


@pytest.mark.integration
def test_attacks_that_need_least_come_first(recorded: Path) -> None:
    ran: list[str] = []

    class First(Patient):
        name, cost = "minutes", "minutes per victim"

        def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
            ran.append(self.name)
            return Direction.run(self, view, generator=generator)

    class Second(First):
        name, cost = "milliseconds", "milliseconds per victim"

    evaluate_recording(_plan(recorded, First(), Second()), Execution(progress=False))
    assert ran[:2] == ["milliseconds", "minutes"]


def test_an_attack_is_stopped_at_the_share_at_which_its_speed_is_known() -> None:
    with AttackBar({"slow": 10}, show=False, budget=TimeBudget(1)) as bar:

        def attack() -> None:
            with bar.attacking("slow", 5):
                for _ in with_progress(range(10)):
                    _Clock.now += 10

        with pytest.raises(OutOfTimeError) as stopped:
            attack()
    assert stopped.value.seconds == pytest.approx(200)
    assert _Clock.now == 1010


def test_each_attack_is_listed_with_its_share() -> None:
    columns = ["attack", "round", "victim", "seconds"]
    rows = [["a", 0, 0, 3.0], ["a", 0, 1, 3.0], ["a", 0, 1, 3.0], ["b", 0, 0, 0.001], ["a+prior", 0, 0, 3.0]]
    lines = {"a": AttackInfo(name="a"), "a+prior": AttackInfo(name="a", with_prior=True)}
    assert (
        time_shares(pd.DataFrame(rows, columns=columns), lines, 12.0)
        == "time: 12 s for the audit; each alone: a 6.0 s (50%)"
    )
    assert time_shares(pd.DataFrame(rows[3:4], columns=columns), lines, 12.0) == "time: 12 s for the audit"


def test_an_attack_whose_own_name_ends_in_prior_is_listed() -> None:
    rows = [["codebook+prior", 0, 0, 3.0], ["ranking/prior", 0, 0, 3.0]]
    lines = {
        "codebook+prior": AttackInfo(name="codebook+prior", variant="prior"),
        "ranking/prior": AttackInfo(role="baseline", with_prior=True),
    }
    table = pd.DataFrame(rows, columns=["attack", "round", "victim", "seconds"])
    assert time_shares(table, lines, 6.0) == "time: 6 s for the audit; each alone: codebook+prior 3.0 s (50%)"
