"""The words of an answer name what is inferred best, next to guessing and to the best baseline."""

import dataclasses
import math

import pandas as pd
import pytest

import fedleak.attacks.words.estimates  # noqa: F401 - says by which metric sets of words are judged
from fedleak.evaluation.added_bits import false_bounds
from fedleak.evaluation.answers import Answer, leading, recorded_answers
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.result_names import LUCK
from fedleak.evaluation.scores import AttackInfo
from fedleak.reports.answer_words import bits_sentence, nothing_scored, numbers, verdict_on
from fedleak.reports.questions import first_verdict, questions
from tests.reports.toys import LINES, cell, table
from tests.wording import lacking


def first(results: pd.DataFrame) -> Answer:
    """The answer that stands first."""
    return leading(recorded_answers(results))[0]


def verdict_of(results: pd.DataFrame) -> str:
    """The verdict on the first answer."""
    return first_verdict(questions(results), results)


def numbers_of(results: pd.DataFrame) -> str:
    """The numbers of the first answer."""
    return numbers(first(results))


def bits_of(results: pd.DataFrame) -> str:
    """What the update adds in bits, of the first answer."""
    return bits_sentence(first(results).bits)


def test_it_says_what_is_inferred_how_well_and_next_to_what() -> None:
    rows = [cell("codebook", 0.95), cell("raifle", 0.9), cell("chance", 0.5), cell("popularity", 0.7)]
    answer = first(table(*rows))
    assert not lacking(verdict_on(answer), "On d", "can infer", "what it clicked")
    measured = ("codebook", "95 of 100", "auc 0.950", "20 clients", "0.920 to 0.980", "among 2 attacks")
    assert not lacking(numbers(answer), *measured, "guessing gives 0.5", "popularity, 0.700", "AUC is")
    assert (answer.metric, answer.question, answer.setting["data"]) == ("auc", "q", "d")


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([cell("codebook", 0.55)], "infers what it clicked much better than guessing"),
        (
            [cell("codebook", 0.91, half=0.01), cell("popularity", 0.89)],
            "infers what it clicked much better than the baselines",
        ),
        ([cell("codebook", 0.7, half=0.25)], "is shown to infer what it clicked better than guessing"),
        ([cell("codebook", 0.9), cell("popularity", 0.89)], "is shown to infer what it clicked better than the base"),
        ([cell("codebook", 0.0, metric="recovered", half=0.0)], "is shown to infer what it clicked."),
        ([cell("codebook", math.nan), cell("raifle", 0.9, half=math.nan)], "is shown to infer"),
    ],
    ids=["near", "near-baseline", "uncertain", "baseline", "zero", "without-interval"],
)
def test_what_hardly_beats_guessing_is_no_leak(rows: list[dict[str, object]], verdict: str) -> None:
    assert verdict_of(table(*rows)).startswith(f"On d, no attack {verdict}")


def test_a_value_without_guessing_counts_from_its_least_one() -> None:
    assert "can infer" in verdict_of(table(cell("codebook", 0.2, metric="recovered")))
    assert "can infer" not in verdict_of(table(cell("codebook", 0.2, metric="recovered", half=0.2)))


def test_a_value_with_its_own_chance_counts_from_that() -> None:
    rows = [cell("codebook", 0.4, metric="identified"), cell("codebook", 0.39, metric="identified-by-chance")]
    assert "no attack is shown" in verdict_of(table(*rows))


@pytest.mark.parametrize(("luck", "shown"), [(0.01, True), (0.04, False)])
def test_luck_decides_for_all_attacks_on_the_question_together(luck: float, shown: bool) -> None:
    rows = [
        {**cell("codebook", 0.9, half=0.3), LUCK: luck},
        {**cell("raifle", 0.8), LUCK: 1.0},
        cell("popularity", 0.7),
    ]
    assert ("can infer" in verdict_of(table(*rows))) == shown


def test_four_clients_show_nothing() -> None:
    rows = [{**cell("codebook", 1.0, half=0.0, n=4), LUCK: 0.0}, cell("popularity", 0.7)]
    assert "can infer" not in verdict_of(table(*rows))


def test_five_clients_and_several_attacks_are_too_few() -> None:
    rows = [{**cell("codebook", 1.0, n=5), LUCK: 1 / 32}]
    rows += [{**cell("raifle", 0.8, n=5), LUCK: 1.0}, cell("popularity", 0.7, n=5)]
    assert "5 clients are too few" in verdict_of(table(*rows))


def test_a_leak_that_is_shown_comes_before_a_greater_one_that_is_not() -> None:
    rows = [cell("codebook", 0.9, half=0.5), cell("raifle", 0.8), cell("chance", 0.5)]
    assert "raifle, picks the right one of a right and a wrong answer in 80 of 100 cases: auc 0.800" in numbers_of(
        table(*rows)
    )


@pytest.mark.parametrize(
    ("n", "said"), [(1, "one client is too few to say whether"), (4, "4 clients are too few"), (5, "")]
)
def test_few_clients_show_nothing(n: int, said: str) -> None:
    answer = first(table(cell("codebook", 0.95, n=n), cell("chance", 0.5, n=n)))
    shown = verdict_on(answer)
    assert ("auc 0.950 on one client (for" in numbers(answer)) == (n == 1)
    assert ("can infer from a client's update what" in shown) == (said == "")
    assert said in shown


WORDS = {
    "adapter-words": AttackInfo(role="ours", family="words", question="WordSetEstimate", tells="its words"),
    "popular-words": AttackInfo(role="baseline", family="words", question="WordSetEstimate"),
}


def test_a_question_whose_prior_did_not_run_shows_nothing() -> None:
    """Frequent words alone have an AUC near 1 and an F1 of some tenths."""
    leak, popular = cell("adapter-words", 0.66, metric="f1"), cell("popular-words", 0.4, metric="f1")
    alone = first(table(leak, lines=WORDS))
    assert not lacking(verdict_on(alone), "On d", "no baseline", "cannot be said whether", "its words")
    assert alone.status == "undecided"
    assert "can infer" in verdict_of(table(leak, popular, lines=WORDS))
    assert "can infer" in verdict_of(table(cell("codebook", 0.95)))  # a question without such a baseline


def test_sets_of_words_are_compared_by_f1() -> None:
    """A list of frequent words has a higher AUC than an attack that finds more of a client's words."""
    rows = [cell("adapter-words", 0.95), cell("adapter-words", 0.32, metric="f1")]
    rows += [cell("popular-words", 0.5), cell("popular-words", 0.41, metric="f1")]
    found = first(table(*rows, lines=WORDS))
    assert ": f1 0.320" in numbers(found)
    assert "can infer" not in verdict_on(found)


def test_the_baseline_is_that_of_the_same_setting_and_question() -> None:
    other = {**LINES, "elsewhere": AttackInfo(role="baseline", question="another")}
    rows = [cell("codebook", 0.8, epsilon=1), cell("popularity", 0.6, epsilon=1), cell("popularity", 0.99, epsilon=2)]
    assert "the best baseline, popularity, 0.600" in numbers_of(
        table(*rows, cell("elsewhere", 0.9, epsilon=1), lines=other)
    )


def test_a_baseline_that_no_number_changes_stands_next_to_all() -> None:
    rows = [cell("codebook", 0.8, interactions=10), cell("popularity", 0.65, interactions=100)]
    assert "the best baseline, popularity, 0.650" in numbers_of(table(*rows))


def test_of_a_distance_the_nearest_is_best() -> None:
    rows = [cell("codebook", 0.2, metric="l1"), cell("raifle", 0.4, metric="l1"), cell("chance", 0.9, metric="l1")]
    assert "codebook, assigns 10 of 100 examples of a client to a wrong class: l1 0.200" in numbers_of(table(*rows))
    assert "the best baseline, chance, 0.900" in numbers_of(table(*rows))
    assert "no baseline ran" in verdict_of(table(cell("codebook", 0.2, metric="l1")))


def test_an_attack_of_which_nothing_is_known_has_a_headline_too() -> None:
    unknown = first(table(cell("new", 3.0, metric="a-metric-of-its-own"), lines={"new": AttackInfo(role="ours")}))
    assert not lacking(verdict_on(unknown), "On d", "can infer", "something about the client")


def test_without_a_score_it_says_so() -> None:
    assert verdict_of(table(cell("codebook", math.nan))) == nothing_scored([])
    baseline_alone = verdict_of(table(cell("chance", 0.5), cell("codebook", math.nan)))
    assert "No attack could be scored" in baseline_alone
    assert "chance, which are no attacks" in baseline_alone


def test_a_setting_that_all_rows_share_is_left_out() -> None:
    rows = [cell(attack, mean, learner="classifier") for attack, mean in (("codebook", 0.95), ("chance", 0.5))]
    assert verdict_of(table(*rows)).startswith("On d, the server")


def test_an_attack_on_generated_data_has_the_headline_only_if_no_other_was_scored() -> None:
    generated, real = cell("codebook", 0.99, data="synthetic"), cell("raifle", 0.9, data="ml-100k")
    baselines = [cell("chance", 0.5, data=data) for data in ("synthetic", "ml-100k")]
    assert first(table(generated, real, *baselines)).setting["data"] == "ml-100k"
    assert first(table(generated, *baselines)).setting["data"] == "synthetic"


def test_settings_in_which_only_another_question_differs_are_left_out() -> None:
    lines = {**LINES, "elsewhere": AttackInfo(role="baseline", question="another")}
    rows = [cell("codebook", 0.95, learner="a"), cell("chance", 0.5, learner="a"), cell("elsewhere", 0.5, learner="b")]
    assert verdict_of(table(*rows, lines=lines)).startswith("On d, the server")


def test_what_the_update_adds_is_said_next_to_what_is_unknown_and_possible() -> None:
    rows = [cell("codebook", 0.95), cell("codebook", 43.63, metric="bits", half=1.0)]
    rows += [cell("codebook", 225.4, metric="bits-left"), cell("codebook", 126.0, metric="bits-bound")]
    added = ("adds 43.6 bits", "42.6 to 44.6", "codebook", "269.0", "unknown without it")
    assert not lacking(bits_of(table(*rows)), *added, "declare", "at most 126.0")


def test_more_bits_than_declared_are_never_put_down_to_the_prior() -> None:
    rows = [cell("codebook", 0.95), cell("codebook", 4.0, metric="bits"), cell("codebook", 3.0, metric="bits-bound")]
    said = bits_of(table(*rows))
    assert "prior lacks" not in said
    assert said.endswith(
        "allows at most 3, which is less: either the declaration is false, or answers that depend on one another are"
        " counted more than once."
    )
    assert false_bounds(Cells(table(*rows))) == []


def test_more_matched_clients_than_epsilon_allows_are_a_false_declaration() -> None:
    rows = [cell("codebook", 0.95), cell("codebook", 22.4, metric="bits"), cell("codebook", 2.89, metric="bits-bound")]
    rows.append(cell("codebook", 0.4, metric="matched-clients-bound"))
    shown = table(*rows, cell("codebook", 0.9, metric="matched-clients", half=0.1))
    assert bits_of(shown).endswith("allows at most 2.89: the declaration is false.")
    (said,) = false_bounds(Cells(shown))
    assert not lacking(said, "declared epsilon is false", "40% of the clients", "codebook matches 18 of 20", "5e-06")
    undecided = table(*rows, cell("codebook", 0.45, metric="matched-clients", half=0.1))
    assert false_bounds(Cells(undecided)) == []
    assert "or answers that depend on one another" in bits_of(undecided)


def test_the_number_of_answers_is_a_bound() -> None:
    rows = [cell("codebook", 0.95), cell("codebook", 4.3, metric="bits"), cell("codebook", 4.4, metric="bits-possible")]
    lines = {**LINES, "codebook": dataclasses.replace(LINES["codebook"], unbounded=("there is no known noise on w",))}
    assert bits_of(table(*rows, lines=lines)).endswith(
        "; all answers together have at most 4.4, and no smaller bound is known, because there is no known noise on w."
    )


def test_an_unknown_bound_has_a_reason() -> None:
    rows = [cell("codebook", 0.95), cell("codebook", 43.63, metric="bits", half=1.0)]
    lines = {**LINES, "codebook": dataclasses.replace(LINES["codebook"], unbounded=("there is no known noise on w",))}
    said = bits_of(table(*rows, lines=lines))
    assert not lacking(said, "adds 43.6 bits", "42.6 to 44.6", "codebook", "no bound is known", "no known noise on w")


def test_bits_whose_interval_has_zero_are_not_shown_to_add_anything() -> None:
    rows = [cell("codebook", 0.95), cell("codebook", 0.1, metric="bits", half=0.2)]
    assert not lacking(bits_of(table(*rows)), "not shown to add", "0.1 bits", "-0.1 to 0.3", "codebook")


def test_nothing_is_said_of_bits_that_were_not_measured() -> None:
    assert bits_of(table(cell("codebook", 0.95))) == ""
