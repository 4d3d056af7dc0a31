"""The lines below the verdict: what the best attack infers, compared with what, on whom, and what to do."""

import math
from typing import Any

import pytest

from fedleak.evaluation.answers import Answer, leading, recorded_answers
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from fedleak.reports.first_screen import compared_in_words, first_lines, measured_on, order_of_changes, what_to_do
from tests.reports.toys import cell, table

SCORES = concat(
    [score_table("codebook", {"l1": [0.1] * 50 + [0.3] * 50}, setting={"data": "d"}, seed=0, victims=range(100))]
)


def first(*rows: dict[str, Any]) -> Answer:
    return leading(recorded_answers(table(*rows)), SCORES)[0]


def test_the_lines_say_it_in_words_without_names() -> None:
    answer = first(cell("codebook", 0.2, metric="l1", n=100), cell("popularity", 0.8, metric="l1"))
    lines = {line.name: line.text for line in first_lines(answer, "Do this.")}
    assert lines == {
        "best attack": "It assigns 10 of 100 examples of a client to a wrong class.",
        "compared with": "The best answer without the update, which assigns 40 of 100 examples of a client to a wrong"
        " class.",
        "measured on": "100 clients; for clients like these 8 to 12 (95% interval); the 10 most exposed of them: 5.",
        "what to do": "Do this.",
    }
    assert not any(name in text for name in ("codebook", "popularity", "l1") for text in lines.values())


def test_without_a_baseline_there_is_nothing_to_compare_with() -> None:
    alone = first(cell("codebook", 0.2, metric="l1"))
    assert compared_in_words(alone).startswith("Nothing: no baseline of this question ran")
    shares = {"codebook": AttackInfo(role="ours", family="composition", question="CompositionEstimate")}
    answer = leading(recorded_answers(table(cell("codebook", 0.2, metric="l1"), lines=shares)))[0]
    assert "no baseline of this question ran (equal-counts, random-guess)" in compared_in_words(answer)
    guessed = first(cell("codebook", 0.9))
    assert compared_in_words(guessed).startswith("Guessing, which picks the right one")


def test_of_one_client_there_is_no_interval_and_no_tenth() -> None:
    answer = first({**cell("codebook", 0.9, n=1), "low": 0.9, "high": 0.9})
    assert measured_on(answer) == "One client."


LEAK = first(cell("codebook", 0.95), cell("popularity", 0.6))
NEAR = first(cell("codebook", 0.61, half=0.01), cell("popularity", 0.6))
WITHOUT_BASELINE = first(cell("codebook", 0.2, metric="l1"))
UNDECIDED = first(cell("codebook", 0.9, n=3), cell("popularity", 0.6))


@pytest.mark.parametrize(
    ("answer", "options", "text"),
    [
        (LEAK, {"is_one_recording": True}, "--what-if FILE"),
        (LEAK, {"is_one_recording": True, "lacks_data": True}, "Record what the questions lack"),
        (LEAK, {"is_one_recording": False}, "Audit your own system"),
        (LEAK, {"is_one_recording": True, "advice": "Take this one."}, "Take this one."),
        (UNDECIDED, {"is_one_recording": True}, "attack more clients"),
        (WITHOUT_BASELINE, {"is_one_recording": True}, "Run the baselines"),
        (NEAR, {"is_one_recording": True}, "--gate METRIC=LIMIT"),
        (None, {"is_one_recording": True}, "Record what the questions below lack"),
    ],
)
def test_what_to_do_follows_from_the_answer(answer: Answer | None, options: dict[str, Any], text: str) -> None:
    assert text in what_to_do(answer, **{"advice": "", "has_gate": False, **options})


def test_a_system_within_its_limits_needs_nothing() -> None:
    assert what_to_do(NEAR, advice="", is_one_recording=True, has_gate=True) == ""


def test_runs_of_one_data_set_begin_with_what_changed() -> None:
    assert order_of_changes(["d", "d"])
    assert not order_of_changes(["d", "d", "other"])


def test_a_comparison_from_another_setting_and_one_by_chance_say_so() -> None:
    elsewhere = first(cell("codebook", 0.9, epsilon=1), cell("popularity", 0.6, epsilon=2))
    assert "(measured in another setting of the same data)" in compared_in_words(elsewhere)
    by_chance = first(cell("codebook", 0.9, metric="identified"), cell("codebook", 0.3, metric="identified-by-chance"))
    assert compared_in_words(by_chance).startswith("What the attack's own answers reach by chance: it ")


def test_a_result_without_an_interval_has_none_in_words() -> None:
    answer = first({**cell("codebook", 0.9), "low": math.nan, "high": math.nan})
    assert measured_on(answer) == "20 clients."
