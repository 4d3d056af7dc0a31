"""Every question has a line: what leaks first, then what is near the baseline, then what was not measured."""

from typing import Any

import pytest

from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.run import Run
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from fedleak.evaluation.what_if import COSINE
from fedleak.reports.questions import not_measured, questions
from tests.reports.toys import LINES, cell, table
from tests.wording import lacking

LINKS = AttackInfo(role="ours", family="linkability", question="links", tells="who sent it")
WORDS = AttackInfo(role="ours", family="words", question="words", tells="which words")


def run(*rows: dict[str, Any], **changed: Any) -> Run:
    return Run("e", "", 0, None, {}, {"name": "d", "sha256": ""}, "", 1.0, table(*rows), **changed)


def test_data_come_before_whose_update_it_is_and_leaks_before_the_rest() -> None:
    lines = {**LINES, "link": LINKS, "words": WORDS}
    rows = [cell("link", 1.0, half=0.0), cell("codebook", 0.9), cell("words", 0.5), cell("chance", 0.5)]
    found = questions(table(*rows, lines=lines))
    assert [(one.answer.family, one.word) for one in found] == [
        ("ranking", "leaks"),
        ("linkability", "leaks"),
        ("words", "near the baseline"),
    ]


def test_generated_data_come_last_and_every_data_set_and_run_has_a_line() -> None:
    rows = [cell("codebook", 1.0, data="synthetic"), cell("chance", 0.5, data="synthetic")]
    rows += [cell("codebook", 0.9, run=name) for name in ("one", "two")]
    found = questions(table(*rows))
    assert [(one.where, one.answer.generated) for one in found] == [
        ("d, run one", False),
        ("d, run two", False),
        ("synthetic", True),
    ]


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ([cell("codebook", 0.9, half=0.5)], "not decided"),
        ([cell("codebook", 0.55, half=0.01)], "near the baseline"),
        ([cell("codebook", 0.55, half=0.3)], "not decided"),  # the interval ends more than half of the way
        ([cell("codebook", 0.2, metric="l1")], "not decided"),  # no baseline
        ([cell("codebook", 3.0, metric="epsilon")], "measured"),
    ],
)
def test_a_word_says_what_was_found(rows: list[dict[str, Any]], word: str) -> None:
    assert [one.word for one in questions(table(*rows))] == [word]


def test_a_bar_goes_from_the_best_baseline_to_certainty() -> None:
    rows = [cell("codebook", 0.2, metric="l1", half=0.1), cell("chance", 0.8, metric="l1"), cell("raifle", 0.5)]
    (found,) = questions(table(*rows[:2]))
    assert found.answer.reach is not None
    assert (found.answer.reach.mean, found.answer.reach.low, found.answer.reach.high) == pytest.approx(
        (0.75, 0.625, 0.875)
    )
    (beyond,) = questions(table(cell("codebook", 0.52, half=0.1)))
    assert beyond.answer.reach is not None
    assert beyond.answer.reach.low == 0.0
    assert not lacking(found.words, "10 of 100 examples", "wrong class", "without the update: 40", "20 clients")
    assert not lacking(found.numbers, "codebook: l1 0.200", "0.100 to 0.300", "n = 20", "chance 0.800")


def test_the_worst_tenth_and_the_bits_are_said() -> None:
    rows = [cell("codebook", 0.75), cell("codebook", 4.0, metric="bits", half=1.0), cell("raifle", 0.6)]
    scores = concat(
        [score_table("codebook", {"auc": [0.6, 0.9]}, setting={"data": "d"}, seed=0, victims=[1, 2])],
    )
    (found,) = questions(table(*rows), scores=scores)
    assert not lacking(found.words, "75 of 100 cases", "guessing: 50", "20 clients")
    measured = ("codebook: auc 0.750", "0.720 to 0.780", "n = 20", "best of 2", "guessing 0.500")
    assert not lacking(found.numbers, *measured, "worst tenth", "0.750", "4 bits", "3 to 5")
    assert found.answer.reach is not None
    assert found.answer.reach.worst == pytest.approx(0.5)


def test_what_was_tried_on_a_recording_is_no_line() -> None:
    rows = [cell("codebook", mean, defence=name) for name, mean in (("none", 0.9), ("top-k 0.1", 1.0))]
    rows += [cell("bound", 1.0, metric=COSINE, defence=name) for name in ("none", "top-k 0.1")]
    (found,) = questions(table(*rows))
    assert found.words.startswith(
        "The best attack picks the right one of a right and a wrong answer in 90 of 100 cases"
    )


def test_a_metric_without_words_stands_with_its_name() -> None:
    (found,) = questions(table(cell("codebook", 0.9, metric="my-metric")))
    assert found.words.startswith("The best attack reaches my-metric 0.9")
    assert found.numbers.startswith("codebook: my-metric 0.900")


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ([("auc", "codebook", "failed")], "failed (auc limit 0.6)"),
        ([("auc", "link", "failed")], ""),  # another question decides; this one may be within the limit
        ([("auc", "link", "ok")], "ok (auc limit 0.6)"),
        ([("auc", "link", "ok"), ("ranking/auc", "codebook", "undecided")], "undecided (auc limit 0.6)"),
        ([("words/auc", "words", "failed"), ("l1", "codebook", "failed")], ""),
    ],
)
def test_the_gate_is_said_of_the_questions_that_it_decides(limits: list[tuple[str, str, str]], verdict: str) -> None:
    gate = [{"metric": name, "attack": attack, "verdict": outcome, "limit": 0.6} for name, attack, outcome in limits]
    (found,) = questions(table(cell("codebook", 0.9)), gate=gate)
    assert found.verdict == verdict


def test_a_question_without_a_result_has_the_reason_of_the_attack_which_lacks_least() -> None:
    slow, without_pool = Reason("slow", says="it is slow"), Reason("misfit", says="no pool")
    lacks = {"dlg": slow, "linear-ratio": without_pool, "linear-peeling": without_pool, "mean-image": slow}
    given = run(cell("codebook", 0.9), not_run=lacks, unrelated={"plain-cosine": Reason("misfit", says="one round")})
    asked, others = not_measured(given, questions(given.results))
    assert [(one.answer.family, one.word, one.answer.reason) for one in asked] == [
        ("reconstruction", "not measured", "it is slow"),
        ("linkability", "not measured", "one round"),
    ]
    assert "composition" in others
    assert not {"ranking", "interactions", "reconstruction"} & {*others}  # measured, baselines alone, with a reason


def test_a_question_that_cannot_be_asked_of_the_system_does_not_apply() -> None:
    lacks = {
        "direction": Reason("inapplicable", says="the server shows no items"),
        "dlg": Reason("inapplicable", says="x"),
        "linear-ratio": Reason("slow", says="it is slow"),
    }
    given = run(cell("codebook", 0.9), unrelated=lacks)
    asked, _ = not_measured(given, questions(given.results))
    assert {one.answer.family: (one.word, one.answer.reason) for one in asked} == {
        "recommendation": ("does not apply", "the server shows no items"),
        "reconstruction": ("not measured", "it is slow"),  # one of its attacks could be asked
    }
