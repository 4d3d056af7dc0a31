"""A verdict of the gate in words."""

from typing import Any

import pytest

from fedleak.evaluation.scores import AttackInfo
from fedleak.reports.gate_words import verdict_in_words
from tests.reports.toys import cell, table
from tests.wording import lacking

LINES = {"exact-counts": AttackInfo(role="ours", family="composition", question="q", tells="what share each class has")}


def verdict(**changed: Any) -> dict[str, Any]:
    fields = {"metric": "composition/l1", "limit": 0.25, "attack": "exact-counts", "value": 0.04, "n": 10}
    return {**fields, "verdict": "failed", **changed}


def words(**changed: Any) -> str:
    return verdict_in_words(verdict(**changed), table(cell("exact-counts", 0.04, metric="l1"), lines=LINES))


def test_it_says_what_is_inferred_by_how_much_and_on_whom() -> None:
    said = ("what share each class has", "2 of 100 examples", "wrong class", "10 clients", "the limit is 12")
    assert not lacking(words(), "Limit exceeded", *said)


@pytest.mark.parametrize(
    ("outcome", "start"),
    [("ok", "Limit kept on"), ("undecided", "Limit not decided on"), ("failed", "Limit exceeded on")],
)
def test_the_outcome_comes_first(outcome: str, start: str) -> None:
    assert words(verdict=outcome).startswith(start)


def test_without_an_attack_or_a_unit_there_are_no_words() -> None:
    assert words(value=None, attack=None, verdict="unchecked") == ""
    assert words(metric="composition/beyond-baseline") == ""


def test_the_worst_client_is_named_as_such() -> None:
    assert "measured on the most exposed client" in words(metric="epsilon", value=9.0, limit=8.0)


def test_a_value_that_is_rounded_to_the_limit_has_both_as_they_are() -> None:
    assert words(value=0.247).endswith("the limit is 12 (l1 0.247, limit 0.25).")


def test_the_round_that_decides_is_named() -> None:
    assert "measured on 10 clients of round 2;" in words(round=2)
