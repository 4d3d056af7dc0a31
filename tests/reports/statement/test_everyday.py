from typing import Any

import pandas as pd
import pytest

from fedleak.core.metric_table import METRICS, metric
from fedleak.evaluation.answers import answers, leading
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.registry import REGISTRY
from fedleak.reports.statement.everyday import answer_in_a_word, everyday
from fedleak.reports.statement.measured_content import Baseline
from fedleak.reports.statement.numbers import Interval
from tests.wording import lacking

WHO = "Whoever can read a client's updates"


def at(value: float, width: float = 0.0) -> Interval:
    return Interval(value=value, low=value - width, high=value + width)


def said(name: str, value: float, *, verdict: str = "yes", **changed: Any) -> str:
    baseline = Baseline(attack="popularity", reads_update=False, result=at(0.72), worst_tenth=at(0.9))
    made: dict[str, Any] = {"metric": name, "result": at(value, 0.01), "baseline": baseline, "guessing": None}
    made |= {"answer": verdict, "infers": "which items it bought", "n": 30, "certain": 0}
    made |= {"worst_tenth": at(0.95), "worst_clients": 3}
    return everyday(made | changed, WHO)


def row(name: str, mean: float, low: float, high: float, role: str = "ours") -> dict[str, Any]:
    common = {"family": "f", "question": "Q", "setting.data": "d", "attack": role, "n": 30}
    return {**common, "metric": name, "mean": mean, "low": low, "high": high, "role": role}


def word(*rows: dict[str, Any], summed: int = 1) -> str:
    """The answer of the results in a word."""
    (answer,) = leading(answers(pd.DataFrame(list(rows))))
    return answer_in_a_word(answer, summed=summed)


def test_every_metric_that_judges_attacks_has_words() -> None:
    names = {name for kind in REGISTRY.values() for name in kind.estimates.metric_names()}
    assert "auc" in names
    for entry in (METRICS[name] for name in names):  # other tests may have imported metrics from outside
        assert not entry.judged or entry.words.count("{}") == 1, entry.name


def test_rates_read_as_counts_with_the_baseline_and_the_worst_clients() -> None:
    rates = ("98 of 100", "97 to 99", "without the update: 72", "guessing: 50")
    assert not lacking(
        said("auc", 0.98, guessing=0.5),
        "can infer",
        "which items it bought",
        *rates,
        "30 clients",
        "3 clients",
        "95",
        "90",
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("l1", 0.16, "assigns 8 of 100 examples of a client to a wrong class (95% interval for clients like these 8"),
        ("recovered", 0.998, "rebuilds more than 99 of 100 training examples exactly"),
        ("share-error", 0.031, "wrong by 3 percentage points"),
        ("mean-error", 12.0, "wrong by 12 about the mean target"),
        ("bits", 5.0, "adds 5 bits to what is known of a client without the update"),
        ("psnr", 21.53, "reaches psnr 21.5, where PSNR is the peak"),
        ("unknown", 0.5, "reaches unknown 0.5 ("),
    ],
)
def test_a_value_reads_in_the_unit_of_its_metric(name: str, value: float, words: str) -> None:
    assert words in said(name, value)


@pytest.mark.parametrize(
    ("verdict", "start"),
    [
        (
            "slightly",
            "Whoever can read a client's updates can infer which items it bought, slightly better than without",
        ),
        ("not shown", "No attack that ran is shown to be better than an answer without the update: to infer which"),
        (
            "cannot be said",
            "No baseline that reads no update ran to compare with. To infer which items it bought, the best attack",
        ),
    ],
)
def test_an_answer_that_is_no_yes_claims_no_leak(verdict: str, start: str) -> None:
    assert said("auc", 0.55, verdict=verdict).startswith(start)


def test_clients_without_an_error_are_counted() -> None:
    assert "for 12 of them without an error by this measure." in said("auc", 0.9, certain=12)
    assert "for all of them without an error by this measure." in said("auc", 1.0, certain=30)


def test_of_few_clients_nothing_is_said_to_be_inferred() -> None:
    few = said("auc", 1.0, n=2, certain=0, verdict="cannot be said")
    assert few.startswith(
        "2 clients are too few to say whether a client's updates show which items it bought: the best attack"
    )
    assert "Whoever can read" not in few
    attack, baseline = row("auc", 0.9, 0.85, 0.95), row("auc", 0.7, 0.65, 0.75, "baseline")
    assert word({**attack, "n": 4}, baseline) == "cannot be said"
    assert word({**attack, "n": 5}, baseline) == "yes"


def test_where_the_frequency_of_words_did_not_run_nothing_can_be_said() -> None:
    attack = {**row("f1", 0.9, 0.85, 0.95), "question": "WordSetEstimate"}
    assert word(attack) == "cannot be said"
    popular = {**row("f1", 0.4, 0.35, 0.45, "baseline"), "question": "WordSetEstimate", "attack": "popular-words"}
    assert word(attack, popular) == "yes"


@pytest.mark.parametrize(
    ("attack", "baseline", "summed", "expected"),
    [
        (row("auc", 0.9, 0.85, 0.95), row("auc", 0.7, 0.65, 0.75, "baseline"), 1, "yes"),
        (row("auc", 0.75, 0.72, 0.78), row("auc", 0.7, 0.65, 0.75, "baseline"), 1, "slightly"),
        (row("auc", 0.75, 0.72, 0.78), row("auc", 0.7, 0.65, 0.75, "baseline"), 10, "not shown"),
        (row("auc", 0.75, 0.75, 0.75), row("auc", 0.7, 0.65, 0.75, "baseline"), 1, "not shown"),
        (row("auc", 0.75, 0.65, 0.85), row("auc", 0.7, 0.65, 0.75, "baseline"), 1, "not shown"),
        (row("l1", 0.1, 0.05, 0.15), row("l1", 0.9, 0.8, 1.0, "baseline"), 1, "yes"),
        (row("l1", 0.9, 0.8, 1.0), row("l1", 0.9, 0.8, 1.0, "baseline"), 1, "not shown"),
        (row("l1", 0.1, 0.05, 0.15), None, 1, "cannot be said"),
    ],
)
def test_answer(attack: dict[str, Any], baseline: dict[str, Any] | None, summed: int, expected: str) -> None:
    rows = [attack] if baseline is None else [attack, baseline]
    assert word(*rows, summed=summed) == expected


def test_gain_is_counted_from_the_best_of_guessing_and_baselines() -> None:
    attack, below, above = (
        row("auc", 0.9, 0.9, 0.9),
        row("auc", 0.3, 0, 1, "baseline"),
        row("auc", 0.8, 0, 1, "baseline"),
    )
    assert metric("auc").guessing == 0.5
    assert Cells(pd.DataFrame([attack, below])).gain(attack) == pytest.approx(0.8)
    assert Cells(pd.DataFrame([attack, below, above])).gain(attack) == pytest.approx(0.5)
    alone = row("l1", 0.4, 0, 1)
    assert Cells(pd.DataFrame([alone])).gain(alone) is None
