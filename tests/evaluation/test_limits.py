"""Limits are read and checked before anything runs, and a wrong one is answered with what was meant."""

import math

import pytest

from fedleak.attacks.composition.decaf import Decaf
from fedleak.attacks.recommendation.item_deltas import Direction, RowNorm
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError
from fedleak.evaluation.limits import Limit, check_limits, limits_of, read_gate

ATTACKS: list[Attack] = [Direction(), RowNorm(), Decaf()]


@pytest.mark.parametrize(
    ("name", "value", "exceeded"),
    [("auc", 0.6, True), ("auc", 0.5, False), ("l1", 0.4, True), ("l1", 0.6, False), ("auc", math.nan, False)],
)
def test_a_limit_is_exceeded_on_the_side_of_the_leak(name: str, value: float, exceeded: bool) -> None:
    assert Limit.named(name, 0.5).exceeded_by(value) == exceeded


@pytest.mark.parametrize("name", ["auc", "composition/l1", "what share of its examples each class has/l1"])
def test_a_limit_has_the_name_that_it_was_given(name: str) -> None:
    limit = Limit.named(name, 0.5)
    assert limit.name == name
    assert limit.applies("Composition", "what share of its examples each class has")
    assert limit.applies("recommendation", "items") == (limit.question is None)


def test_of_several_bounds_of_one_name_the_last_holds() -> None:
    assert read_gate(["auc=0.6,auc=0.7", "auc=0.8"]) == [Limit(None, "auc", 0.8)]


@pytest.mark.parametrize(
    ("text", "limits"),
    [("auc=0.6", {"auc": 0.6}), ("auc=0.6,l1=.3", {"auc": 0.6, "l1": 0.3}), ('{"f1": 1}', {"f1": 1.0})],
)
def test_limits_are_read(text: str, limits: dict[str, float]) -> None:
    assert read_gate([text]) == limits_of(limits)


@pytest.mark.parametrize(
    "text", ["auc", "auc=high", "", "auc=nan", "auc=inf", "{", "[1]", '{"auc": null}', "auc=0.6,", "auc=6_0"]
)
def test_a_malformed_limit_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--gate METRIC=NUMBER|a finite limit on auc") as refused:
        read_gate([text])
    assert refused.value.found in (text, "nan", "inf")


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("AUC", "Did you mean auc?"),
        ("l11", "Did you mean l1?"),
        ("coverage", "which measures no leakage"),
        ("fpr", "which measures no leakage"),
        ("ndcg@10", "E.g. auc or l1"),
        ("recomendation/auc", "Did you mean recommendation (which of the items"),
        ("class-shares/l1", "Did you mean composition (what share of its examples each class has)?"),
        ("beyond-baselin", "Did you mean beyond-baseline?"),
        ("nothing/auc", "A question is a family of attacks: recommendation, composition."),
        ("change", "--reference RUN"),
        ("recommendation/l1", "of recommendation"),
        ("composition/auc", "of composition"),
    ],
)
def test_limit_of_an_unknown_question_or_metric_is_refused(name: str, way_out: str) -> None:
    with pytest.raises(InputError, match="found") as refused:
        check_limits(limits_of({name: 0.5}), ATTACKS)
    assert way_out in str(refused.value)


@pytest.mark.parametrize(("name", "limit"), [("auc", 60), ("auc", -0.1), ("l1", -0.1), ("l1", 2.5), ("epsilon", -1)])
def test_limit_beyond_the_span_of_its_metric_is_refused(name: str, limit: float) -> None:
    with pytest.raises(InputError, match="limit"):
        check_limits(limits_of({name: limit}), ATTACKS)
