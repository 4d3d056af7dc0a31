"""A plan of an audit refuses what no audit can do, before anything runs, and says in words what it does."""

import dataclasses
from pathlib import Path
from typing import Any, get_args

import pytest

from fedleak.attacks.linkability.similarity import Linkability
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.core.errors import InputError
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import run_audit
from fedleak.evaluation.message_selection import MessageSelection
from fedleak.evaluation.registry import chosen_attacks
from fedleak.recordings.control import Control, ControlRecording
from fedleak.recordings.recording import Recording
from fedleak.reports.write_run import write_run
from tests.toys import train


class Another(Direction):
    """An attack with the name of another one."""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> AuditPlan:
    folder = tmp_path_factory.mktemp("recorded")
    train(folder, rounds=2, users=8, items=40)
    return AuditPlan(recording=Recording(folder / "deltas"), attacks=[Direction(), Linkability()])


@pytest.mark.integration
@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"seed": -1}, "found -1"),
        ({"seed": 2**63}, "found 9223372036854775808"),
        ({"victims": 0}, "found 0"),
        ({"minutes": 0.0}, "found 0"),
        ({"slow": "some"}, "found 'some'"),
        ({"rounds": [0, 7]}, "rounds among 0, 1; found 7"),
        ({"limits": {"directoin": 3}}, "found directoin"),
        ({"attacks": [Direction(), Another()]}, "recommendation/direction as"),
    ],
)
def test_values_that_no_audit_can_have_are_refused(plan: AuditPlan, wrong: dict[str, Any], found: str) -> None:
    with pytest.raises(InputError, match=found):
        dataclasses.replace(plan, **wrong)


@pytest.mark.integration
def test_each_clause_says_what_the_plan_does(plan: AuditPlan) -> None:
    assert plan.described() == {
        "attacks": "recommendation/direction, linkability/linkability",
        "clients": "all 8 pseudonyms",
        "rounds": "all 2",
        "slow attacks": "left out",
        "time": "no bound",
        "seed": "0, of the attacks' draws",
    }
    other = dataclasses.replace(
        plan,
        attacks=chosen_attacks(),
        seed=3,
        victims=5,
        limits={"direction": 2},
        rounds=[1],
        history=True,
        slow="few",
        minutes=2.5,
        messages=MessageSelection(names="shuffled"),
        check_learner=False,
    )
    clauses = other.described()
    assert clauses["attacks"].startswith(f"{len(other.attacks)} asked for, on ")
    assert clauses["attacks"].endswith("questions; direction on at most 2 clients")
    drawn = "5 of 8 pseudonyms, drawn at random with seed 3"
    assert clauses["clients"] == f"{drawn}; attacks on all messages together get all of them, up to 65,536"
    assert clauses["rounds"] == "number 1, of 2 recorded, with the earlier messages of the same clients"
    few = clauses["on a few clients of the first round"]
    few_attacks = ("head-features", "linear-inversion", "linear-peeling", "unrelated-head-features")
    assert few == ", ".join(f"reconstruction/{name} (at most 5)" for name in few_attacks)
    assert clauses["slow attacks"] == "on a few clients of the first round"
    assert clauses["time"] == "about 2.5 minutes; attacks that do not fit in are left out"
    assert "names='shuffled'" in clauses["messages"]
    assert clauses["learner"] == "not compared with the recorded updates"
    assert "on a few clients of the first round" not in dataclasses.replace(other, slow="all").described()


@pytest.mark.integration
@pytest.mark.parametrize("control", get_args(Control))
def test_a_control_says_what_is_exchanged(plan: AuditPlan, control: Control) -> None:
    """Priors that say nothing leave the updates as they are."""
    controlled = dataclasses.replace(plan, recording=ControlRecording(plan.recording.directory, control))
    assert ("update" in controlled.described()["control"]) == (control != "priors")


@pytest.mark.integration
def test_some_of_its_attacks_have_their_limits(plan: AuditPlan) -> None:
    limited = dataclasses.replace(plan, limits={"direction": 2, "linkability": 5})
    assert limited.with_attacks([Linkability()]).limits == {"linkability": 5}


@pytest.mark.integration
def test_the_page_of_a_run_says_how_it_was_audited(plan: AuditPlan, tmp_path: Path) -> None:
    write_run(run_audit(dataclasses.replace(plan, victims=5), progress=False), directory=tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "How it was audited" in page
    assert "5 of 8 pseudonyms, drawn at random with seed 0" in page
