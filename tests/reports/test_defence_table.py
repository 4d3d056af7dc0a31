"""Which defence keeps which limit stands in the first table of a what-if."""

import pandas as pd

from fedleak.evaluation.as_recorded import COSINE
from fedleak.evaluation.result_names import LOSS
from fedleak.reports.defence_table import defence_table
from tests.reports.toys import cell, table

LEFT = {"none": 1.0, "clip": 0.9, "top-k 0.1": 0.5}


def results(*further: dict[str, object]) -> pd.DataFrame:
    rows = [cell("bound", left, metric=COSINE, defence=name) for name, left in LEFT.items()]
    leaks = {"none": 0.95, "clip": 0.9, "top-k 0.1": 0.65}
    rows += [cell("codebook", leak, defence=name) for name, leak in leaks.items()]
    rows += [cell("popularity", 0.6, defence=name) for name in LEFT]
    return table(*rows, *further)


def test_those_that_keep_more_limits_come_first_below_the_recording() -> None:
    outcomes = {"none": {"auc=0.7": "failed"}, "clip": {"auc=0.7": "failed"}, "top-k 0.1": {"auc=0.7": "ok"}}
    made = defence_table(results(), outcomes)
    assert made is not None
    assert made.rows["defence"].tolist() == ["none, as recorded", "top-k 0.1", "clip"]
    assert made.rows["limit auc=0.7"].tolist() == ["exceeded", "kept", "exceeded"]
    assert made.rows["What it clicked (more leaks more)"].tolist() == ["95", "65", "90"]
    assert made.rows["cosine of the mean update"].tolist() == ["1.000", "0.500", "0.900"]
    assert "without the update 60" in made.caption


def test_without_limits_it_says_how_to_set_them() -> None:
    made = defence_table(results(), {})
    assert made is not None
    assert "Set limits (--gate METRIC=LIMIT)" in made.caption
    assert made.rows["defence"].tolist() == ["none, as recorded", "clip", "top-k 0.1"]


def test_the_loss_stands_for_the_learning_where_it_was_measured() -> None:
    losses = [cell("bound", loss, metric=LOSS, defence=name) for name, loss in zip(LEFT, (1.0, 3.0, 2.0), strict=True)]
    made = defence_table(results(*losses), {})
    assert made is not None
    assert made.rows["loss after the round"].tolist() == ["1.000", "2.000", "3.000"]


def test_an_attack_that_did_not_run_under_a_defence_has_no_value() -> None:
    rows = [cell("bound", left, metric=COSINE, defence=name) for name, left in LEFT.items()]
    made = defence_table(table(*rows, cell("codebook", 0.9, defence="none")), {})
    assert made is not None
    assert made.rows["What it clicked (more leaks more)"].tolist() == ["90", "not measured", "not measured"]


def test_where_nothing_was_tried_there_is_no_table() -> None:
    assert defence_table(table(cell("codebook", 0.9)), {}) is None
