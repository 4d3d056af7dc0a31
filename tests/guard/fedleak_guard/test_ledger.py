"""What is spent, counted from a log by hand."""

import math

import pytest

from fedleak_guard.gaussian import gaussian_epsilon
from fedleak_guard.ledger import Ledger, Spent, overdrawn, precision_of, spent
from fedleak_guard.message import Message
from fedleak_guard.policy import AddedNoise, Budget, DeclaredPrivacy, Policy

ENTRIES = [
    {"event": "released", "job": "a", "tensors": 2, "precision": 4.0},
    {"event": "refused", "job": "a", "tensors": 2, "precision": 4.0},
    {"event": "released", "job": "b", "tensors": 2, "precision": 1.0},
    {"event": "released", "job": "a", "tensors": 0, "precision": None},
    {"event": "released", "job": "c", "tensors": 1, "precision": None},
]


def test_released_messages_with_tensors_count() -> None:
    ledger = Ledger()
    for end in range(len(ENTRIES) + 1):  # as they are appended
        ledger.count(ENTRIES[:end])
    assert ledger.jobs == {"a": Spent(1, 4.0), "b": Spent(1, 1.0), "c": Spent(1, math.inf)}
    assert ledger.site == spent(ENTRIES) == Spent(3, math.inf)
    assert spent([]).after(2.0) == Spent(1, 2.0)


def test_messages_of_any_kind_count_where_the_budget_says_so() -> None:
    ledger = Ledger()
    ledger.count(ENTRIES)
    assert (ledger.left["a"], ledger.left.total()) == (2, 4)
    alone, whole = Message(job="a", round=0), Message(job="a", round=0, sent={})
    assert ledger.overdrawn(Budget(job_messages=3, site_messages=5, job_rounds=1), alone, 0.0) == []
    assert len(ledger.overdrawn(Budget(job_messages=2, site_messages=4), alone, 0.0)) == 2
    assert len(ledger.overdrawn(Budget(job_messages=2, site_messages=4, job_rounds=1), whole, 0.0)) == 3


def test_a_job_that_sent_metrics_alone_is_still_before_its_first_round() -> None:
    ledger = Ledger()
    ledger.count([{"event": "released", "job": "a", "tensors": 0, "precision": None}])
    assert ledger.is_first("a")
    ledger.count([ENTRIES[3], ENTRIES[0]])
    assert not ledger.is_first("a")


@pytest.mark.parametrize(
    ("neighbours", "declared", "added", "precision"),
    [
        ("replace", True, False, 16.0),
        ("add", True, False, 4.0),
        ("replace", False, True, 1.0),
        ("replace", True, True, 1.0),
        ("replace", False, False, math.inf),
    ],
)
def test_the_loss_of_a_message(neighbours: str, declared: bool, added: bool, precision: float) -> None:
    privacy = DeclaredPrivacy(clip=2.0, noise=1.0, neighbours=neighbours)  # type: ignore[arg-type]
    policy = Policy(format=1, evidence="", tensors=(), privacy=privacy, noise=AddedNoise(clip=1.0, scale=2.0))
    assert precision_of(policy, declared=declared, added=added) == precision


def test_limits_of_job_and_site() -> None:
    epsilon = gaussian_epsilon(4.0, 1e-5)
    budget = Budget(job_rounds=2, job_epsilon=epsilon, site_rounds=3, site_epsilon=2 * epsilon)
    assert overdrawn(budget, Spent(2, 4.0), Spent(3, 8.0)) == []
    assert len(overdrawn(budget, Spent(3, 4.1), Spent(4, math.inf))) == 4
