"""The rules for the best attack, what it is compared with, how far it goes and whether it is a leak."""

import dataclasses
from typing import Any

import pandas as pd
import pytest

from fedleak.core.metric_table import METRICS
from fedleak.evaluation.answers import Answer, answers, leading, recorded_answers
from fedleak.evaluation.as_recorded import COSINE
from fedleak.evaluation.comparisons import Cells, Comparison
from fedleak.evaluation.result_names import LUCK
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from tests.reports.toys import cell, table

SHARES = {
    "attack": AttackInfo(role="ours", family="composition", question="CompositionEstimate", tells="class shares"),
    "equal-counts": AttackInfo(
        role="baseline", comparison="blind", family="composition", question="CompositionEstimate"
    ),
    "shuffled": AttackInfo(role="baseline", comparison="control", family="composition", question="CompositionEstimate"),
    # Of results of an earlier version, which compared with attacks that read one thing of the update.
    "uniform-present": AttackInfo(role="baseline", family="composition", question="CompositionEstimate"),
}


def compared(*rows: dict[str, Any], lines: dict[str, AttackInfo] | None = None) -> Comparison | None:
    """What the first of some results is compared with."""
    results = table(*rows, lines=lines)
    return Cells(results).comparison(results.to_dict("records")[0])  # type: ignore[arg-type]


def only(results: pd.DataFrame) -> Answer:
    """The only answer of some results."""
    (answer,) = answers(results)
    return answer


def test_a_comparison_is_the_best_of_guessing_chance_and_baselines() -> None:
    rows = [cell("codebook", 0.9), cell("chance", 0.48), cell("popularity", 0.7)]
    assert compared(*rows) == Comparison("prior", 0.7, "popularity")
    assert compared(*rows[:2]) == Comparison("guessing", 0.5, "guessing")
    identified = [cell("codebook", 0.4, metric="identified"), cell("codebook", 0.3, metric="identified-by-chance")]
    assert compared(*identified) == Comparison("chance", 0.3, "codebook")


def test_nothing_that_reads_the_update_is_a_comparison() -> None:
    rows = [cell("attack", 0.2, metric="l1"), cell("uniform-present", 0.3, metric="l1")]
    assert compared(*rows, lines=SHARES) is None
    rows.append(cell("equal-counts", 0.8, metric="l1"))
    assert compared(*rows, lines=SHARES) == Comparison("blind", 0.8, "equal-counts")


def test_an_error_is_not_compared_with_controls_alone() -> None:
    """Noise makes the error of a control as large as one likes."""
    rows = [cell("attack", 0.9, metric="l1"), cell("shuffled", 1.9, metric="l1")]
    assert compared(*rows, lines=SHARES) is None
    rows.append(cell("equal-counts", 0.8, metric="l1"))
    assert compared(*rows, lines=SHARES) == Comparison("blind", 0.8, "equal-counts")


def test_a_control_counts_where_more_is_more_leakage() -> None:
    rows = [cell("attack", 0.9, metric="source"), cell("shuffled", 0.4, metric="source")]
    assert compared(*rows, lines=SHARES) == Comparison("control", 0.4, "shuffled")


def test_where_the_baseline_of_a_question_did_not_run_there_is_no_comparison() -> None:
    lines = {"attack": dataclasses.replace(SHARES["attack"], question="ReconstructionEstimate")}
    assert compared(cell("attack", 0.9, metric="recovered"), lines=lines) is None
    own = {"attack": dataclasses.replace(SHARES["attack"], question="AQuestionFromElsewhere")}
    assert compared(cell("attack", 0.9, metric="recovered"), lines=own) == Comparison("least", 0.0, "nothing")


def test_where_the_prior_of_a_question_did_not_run_guessing_is_no_comparison() -> None:
    clicks = {
        "attack": AttackInfo(role="ours", family="interactions", question="InteractionEstimate"),
        "popularity": AttackInfo(role="baseline", comparison="prior", question="InteractionEstimate"),
        "chance": AttackInfo(role="baseline", comparison="blind", question="InteractionEstimate"),
    }
    rows = [cell("attack", 0.9), cell("chance", 0.5)]
    assert compared(*rows, lines=clicks) is None
    assert compared(*rows, cell("popularity", 0.6), lines=clicks) == Comparison("prior", 0.6, "popularity")


def test_baselines_of_the_same_data_stand_in_for_those_of_the_setting() -> None:
    rows = [cell("attack", 0.2, metric="l1", epsilon=1), cell("equal-counts", 0.8, metric="l1", epsilon=2)]
    found = compared(*rows, lines=SHARES)
    assert found == Comparison("blind", 0.8, "equal-counts", elsewhere=True)
    rows.append(cell("equal-counts", 0.6, metric="l1", epsilon=1))
    assert compared(*rows, lines=SHARES) == Comparison("blind", 0.6, "equal-counts")
    other_data = [rows[0], cell("equal-counts", 0.8, metric="l1", data="other")]
    assert compared(*other_data, lines=SHARES) is None


@pytest.mark.parametrize(
    ("rows", "status", "gain"),
    [
        ([cell("codebook", 0.85), cell("popularity", 0.7)], "leak", 0.5),
        ([cell("codebook", 0.75, half=0.02), cell("popularity", 0.7)], "near", 1 / 6),
        ([cell("codebook", 0.75, half=0.15), cell("popularity", 0.7)], "undecided", 1 / 6),  # ends past a half
        ([cell("codebook", 0.85, half=0.2), cell("popularity", 0.7)], "undecided", 0.5),  # may be worse
        ([cell("codebook", 0.6, half=0.02), cell("popularity", 0.7)], "near", -1 / 3),  # worse than the baseline
        ([cell("codebook", 0.2, metric="l1"), cell("popularity", 1.0, metric="l1")], "leak", 0.8),
        ([cell("codebook", 1.2, metric="l1"), cell("popularity", 1.0, metric="l1")], "near", -0.2),
        ([cell("codebook", 0.85, n=4), cell("popularity", 0.7)], "undecided", 0.5),  # of too few clients
    ],
)
def test_the_status_follows_from_how_far_it_goes(rows: list[dict[str, Any]], status: str, gain: float) -> None:
    answer = only(table(*rows))
    assert answer.status == status
    assert answer.gain == pytest.approx(gain)
    assert answer.is_shown or status != "leak"


def test_leakage_has_the_sign_of_more() -> None:
    assert METRICS["auc"].leakage(0.7) == 0.7
    assert METRICS["l1"].leakage(0.7) == -0.7


def test_a_leak_that_is_shown_comes_before_one_that_goes_further() -> None:
    rows = [cell("codebook", 0.95, n=4), cell("raifle", 0.8), cell("popularity", 0.6)]
    answer = only(table(*rows))
    assert answer.row is not None
    assert answer.row["attack"] == "raifle"
    assert [row["attack"] for row in answer.ranked] == ["raifle", "codebook"]
    assert set(answer.attacks) == {"raifle", "codebook"}


def test_luck_of_all_attacks_together_decides() -> None:
    def shown(luck: float) -> bool:
        rows = [{**cell("codebook", 0.9), LUCK: luck}, {**cell("raifle", 0.8), LUCK: 1.0}, cell("popularity", 0.6)]
        return only(table(*rows)).is_shown

    assert shown(0.02)
    assert not shown(0.03)


def test_the_leading_answer_is_that_of_the_setting_that_goes_furthest() -> None:
    rows = [cell(name, mean, epsilon=value) for value, mean in ((1, 0.7), (8, 0.9)) for name in ("codebook", "raifle")]
    rows += [cell("popularity", 0.6, epsilon=value) for value in (1, 8)]
    rows += [cell("codebook", 0.2, metric="l1", epsilon=1), cell("popularity", 0.25, metric="l1", epsilon=1)]
    results = table(*rows)
    assert len(answers(results)) == 3
    (answer,) = leading(answers(results))
    assert (answer.metric, answer.setting["epsilon"]) == ("auc", 8)
    assert answer.varied == {"epsilon"}
    assert len(answer.attacks) == 2


def test_results_under_defences_are_answers_of_their_own_and_none_of_the_recording() -> None:
    rows = [cell("codebook", mean, defence=name) for name, mean in (("none", 0.9), ("top-k 0.1", 0.6))]
    rows += [cell("popularity", 0.55, defence=name) for name in ("none", "top-k 0.1")]
    rows += [cell("bound", 1.0, metric=COSINE, defence=name) for name in ("none", "top-k 0.1")]
    assert [answer.setting["defence"] for answer in answers(table(*rows))] == ["none", "top-k 0.1"]
    assert [answer.setting["defence"] for answer in recorded_answers(table(*rows))] == ["none"]


def test_the_worst_tenth_lies_on_the_same_way() -> None:
    scores = concat(
        [score_table("codebook", {"auc": [0.6, 0.9, 0.6]}, setting={"data": "d"}, seed=0, victims=[1, 2, 3])]
    )
    (answer,) = leading(answers(table(cell("codebook", 0.7), cell("popularity", 0.6))), scores)
    assert answer.reach is not None
    assert answer.reach.mean == pytest.approx(0.25)
    assert answer.reach.worst == pytest.approx(0.25)  # all three, as fewer would be known


def test_without_results_there_is_no_answer() -> None:
    assert answers(table(cell("chance", 0.5))) == []
    assert answers(pd.DataFrame()) == []
