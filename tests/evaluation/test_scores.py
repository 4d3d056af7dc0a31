"""Settings and numbers in words."""

import pandas as pd

from fedleak.evaluation.scores import AttackInfo, describe, differing, from_records, number

CELLS = [
    {"setting.data": "a", "setting.ranker": "linear", "setting.epsilon": 1},
    {"setting.data": "a", "setting.ranker": "linear", "setting.epsilon": 20, "setting.prior": "count"},
]


def test_what_differs_or_is_missing_somewhere_is_named() -> None:
    assert differing(from_records(CELLS)) == {"epsilon", "prior"}
    assert differing(from_records(CELLS[:1])) == set()
    assert differing(pd.DataFrame()) == set()


def test_a_line_of_several_views_has_all_reasons_for_which_no_bound_is_known() -> None:
    first, second = AttackInfo(unbounded=("no noise",)), AttackInfo(unbounded=("sums",))
    assert second.after(first).unbounded == ("no noise", "sums")
    assert first.after(second.after(first)).columns()["unbounded"] == "no noise; sums"
    assert AttackInfo().after(first).unbounded == ("no noise",)
    assert AttackInfo().after(None).columns()["unbounded"] == ""


def test_data_and_rankers_speak_for_themselves() -> None:
    setting = {"data": "a", "ranker": "linear", "epsilon": 20, "prior": "count"}
    assert describe(setting) == "a, linear, epsilon 20, prior count"
    assert describe(setting, {"ranker", "prior"}) == "linear, prior count"


def test_a_run_that_is_named_after_its_data_is_named_once() -> None:
    assert describe({"data": "digits", "run": "digits"}) == "digits"
    assert describe({"data": "digits", "run": "digits-local-dp"}) == "digits, run digits-local-dp"


def test_small_numbers_are_not_hidden() -> None:
    assert [number(value) for value in (0.0, 0.00002, 0.5, -0.12345)] == ["0.000", "2.0e-05", "0.500", "-0.123"]
