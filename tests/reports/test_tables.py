"""Long tables, wide ones, and texts that stand under one another."""

from typing import Any

import pandas as pd
import pytest

from fedleak.core.errors import InputError
from fedleak.core.metric import Metric
from fedleak.core.metric_table import METRICS
from fedleak.reports.tables import (
    ReportTable,
    axis,
    best_first,
    column_of,
    difference_table,
    is_numeric,
    long_table,
    wide_table,
    with_measured,
)
from tests.reports.toys import cell, table

RANKERS = ("linear", "neural-4")


def ranked(epsilon: float | str, queries: int, ranker: str, attack: str = "codebook") -> dict[str, Any]:
    mean = 0.9 if epsilon == "inf" else 0.6
    made = cell(attack, mean, n=116, data="MQ2008", ranker=ranker, queries=queries, epsilon=epsilon)
    return {**made, "paper": 0.77, "source": "RAIFLE Table VII"}


MANY = [ranked(e, q, ranker) for ranker in RANKERS for q in (4, 8, 16) for e in (1, 20, 100, 500, "inf")]


def test_a_long_table_gets_a_column_for_each_budget() -> None:
    assert column_of(table(*MANY)) == "setting.epsilon"
    wide = wide_table(table(*MANY), "setting.epsilon")
    budgets = ["epsilon 1", "epsilon 20", "epsilon 100", "epsilon 500", "epsilon inf"]
    assert list(wide) == ["setting", "attack", *budgets, "n"]
    assert len(wide) == 6
    row = ["linear, queries 8", "codebook", *["0.600 [0.570, 0.630] (0.77)"] * 4, "0.900 [0.870, 0.930] (0.77)", "116"]
    assert wide.iloc[1].tolist() == row


def test_a_line_that_lacks_a_cell_leaves_it_empty() -> None:
    wide = wide_table(table(*MANY, ranked(20, 4, "linear", attack="raifle")), "setting.epsilon")
    assert wide.iloc[-1].tolist()[2:4] == ["", "0.600 [0.570, 0.630] (0.77)"]


def test_a_short_table_and_one_of_a_single_setting_stay_as_they_are() -> None:
    assert column_of(table(*MANY[:10])) is None
    assert axis(table(ranked(20, 4, "linear"))) is None


def test_what_holds_for_every_budget_has_a_column_of_its_own() -> None:
    bound = cell("bound", 0.7, half=0.0, n=116, data="MQ2008", ranker="linear", queries=4)
    wide = wide_table(table(*MANY, bound), "setting.epsilon")
    assert list(wide)[-2:] == ["any epsilon", "n"]
    assert wide.iloc[-1].tolist()[-2:] == ["0.700 [0.700, 0.700]", "116"]


def test_words_become_columns_where_no_number_varies() -> None:
    rows = [
        cell(attack, 0.5, metric=metric, n=60 + place, data="blog", prior=prior)
        for attack in ("reid-svm", "reid-mlp", "chance")
        for place, prior in enumerate(("random", "chrono"))
        for metric in ("ap", "times-chance", "top1", "top5")
    ]
    assert column_of(table(*rows)) == "setting.prior"
    wide = wide_table(table(*rows), "setting.prior")
    assert list(wide) == ["attack", "metric", "prior random", "prior chrono", "n"]
    assert wide["n"].unique().tolist() == ["60 to 61"]
    assert axis(table(*rows)) is None


def test_the_axis_is_the_number_that_varies_most() -> None:
    assert axis(table(*MANY)) == "setting.epsilon"
    flags = [cell("codebook", 0.5, data="d", flag=flag, rounds=number) for flag in (True, False) for number in (1, 1)]
    assert axis(table(*flags)) is None  # a yes or no is no number


def test_each_cell_stands_next_to_the_papers() -> None:
    row, _ = long_table(table(ranked(20, 4, "linear"), ranked(20, 8, "linear"))).to_dict("records")
    assert row == {
        **{"attack": "codebook", "setting": "queries 4", "metric": "auc", "mean": "0.600"},
        **{"95% interval": "0.570 to 0.630", "n": "116"},
        **{"paper": "0.770 (RAIFLE Table VII)", "difference": "-0.170", "ms per victim": "100.0"},
    }


def test_a_column_without_a_value_is_left_out() -> None:
    assert list(long_table(table(cell("codebook", 0.6)))) == [
        *("attack", "metric", "mean", "95% interval", "n", "ms per victim")
    ]


def test_columns_of_numbers_are_known() -> None:
    for texts in (
        ["0.6", "-1.0", ""],
        ["0.600 [0.570, 0.630] (0.77)"],
        ["0.1 to 0.2"],
        ["60 to 61", "-"],
        ["+0.1", "inf"],
    ):
        assert is_numeric(texts), texts
    for texts in (["codebook"], ["epsilon 1"], ["", ""], ["3", "x"]):
        assert not is_numeric(texts), texts


def test_rows_of_any_table_are_texts() -> None:
    rows = pd.DataFrame({"name": ["a", None], "scale": [0.123456, 12.0], "found": [True, False]}, dtype=object)
    assert ReportTable("t", "c", rows).texts.to_numpy().tolist() == [["a", "0.1235", "yes"], ["", "12", "no"]]
    assert ReportTable("t", "c", rows).numeric == [False, True, False]


def test_the_best_attack_is_the_one_with_the_best_mean() -> None:
    rows = table(cell("a", 0.5), cell("b", 0.6, x=1), cell("c", 0.55), cell("b", 0.1, x=2), lines={})
    assert best_first(rows, "auc")["attack"].tolist() == ["b", "b", "c", "a"]
    assert best_first(rows, "l1")["attack"].tolist() == ["b", "b", "a", "c"]


@pytest.mark.parametrize(("seeds", "people"), [(1, "20"), (3, "20, 3 seeds")])
def test_a_difference_has_a_sign(seeds: int, people: str) -> None:
    rows = table({**cell("codebook", 0.1, half=0.2), "seeds": seeds, "against": "raifle"})
    (row,) = difference_table(rows).to_dict("records")
    assert (row["minus"], row["difference"], row["95% interval"]) == ("raifle", "+0.100", "-0.100 to +0.300")
    assert row["n"] == people


def test_without_a_setting_the_columns_are_the_metrics() -> None:
    attacks, metrics = ("codebook", "raifle", "chance"), [f"m{number}" for number in range(8)]
    wide = wide_table(table(*(cell(attack, 0.5, metric=metric, n=9) for attack in attacks for metric in metrics)), None)
    assert list(wide) == ["attack", *metrics, "n"]
    assert wide["attack"].tolist() == [*attacks]
    assert wide.iloc[0].tolist()[:3] == ["codebook", "0.500 [0.470, 0.530]", "0.500 [0.470, 0.530]"]


def test_a_single_value_has_no_interval() -> None:
    one = table(cell("bound", 0.2, n=1, half=0), cell("codebook", 0.9))
    assert long_table(one)["95% interval"].tolist() == ["", "0.870 to 0.930"]
    assert wide_table(one, None)["auc"].tolist() == ["0.200", "0.900 [0.870, 0.930]"]


def test_an_interval_about_a_mean_at_the_end_of_the_span_stays_within_the_span() -> None:
    """Of ten clients without any leak it reaches up to 0.308, and not 0.154 below and above 0."""
    none_of_ten = {**cell("raifle", 0.0, metric="exact", n=10), "low": 0.0, "high": 0.308}
    assert wide_table(table(none_of_ten), None)["exact"].tolist() == ["0.000 [0.000, 0.308]"]


def test_value_that_an_attack_expects_of_itself_stands_next_to_the_measured_one() -> None:
    rows = table(
        *(cell("codebook", mean, metric="auc", epsilon=epsilon) for mean, epsilon in ((0.5, 1), (0.9, "inf"))),
        *(
            cell("codebook", mean, metric="predicted-auc", epsilon=epsilon)
            for mean, epsilon in ((0.8, 1), (0.9, "inf"))
        ),
        cell("raifle", 0.7, metric="predicted-auc", epsilon=1),
    )
    predicted = with_measured(rows)
    predicted = predicted[predicted["metric"] == "predicted-auc"]
    assert long_table(predicted)["mean"].tolist() == [
        "0.800 (expected; measured 0.500, off by +0.300)",
        "0.900 (expected; measured 0.900, off by +0.000)",
        "0.700 (expected, nothing measured)",
    ]
    wide = wide_table(predicted, None)
    assert "measured 0.500" in wide["predicted-auc"].iloc[0]
    assert is_numeric(wide["predicted-auc"].tolist())


def test_what_is_expected_of_some_is_not_compared_with_the_mean_of_all() -> None:
    rows = with_measured(table(cell("words", 0.5, n=8), cell("words", 1.0, metric="predicted-auc", n=4)))
    assert long_table(rows)["mean"].tolist()[1] == "1.000 (expected of 4 of 8; measured 0.500 of all)"


def test_every_predicted_metric_names_what_was_measured_and_is_no_leak() -> None:
    from fedleak.evaluation.registry import REGISTRY

    assert {kind.estimates for kind in REGISTRY.values()}  # imports all metrics
    predicted = [entry for entry in METRICS.values() if entry.name.startswith("predicted")]
    assert len(predicted) >= 6
    for entry in predicted:
        assert entry.predicts in METRICS
        assert not entry.leak
    with pytest.raises(InputError, match="itself"):
        Metric("predicted-x", "", predicts="auc")
