"""The result of a question in everyday words."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedleak.core.metric_table import metric
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.near_guessing import best_guess
from fedleak.reports.headline import best_baseline, comparisons, is_shown
from fedleak.reports.metric_words import number_in_words, value_in_words
from fedleak.reports.statement.content import Answer

_SLIGHT = 0.2
"""Gain below which an attack is only slightly better than a baseline, as in the diagnosis of failures."""


def answer(
    row: Mapping[str, Any],
    results: pd.DataFrame,
    *,
    reads: bool = False,
    summed: int = 1,
) -> Answer:
    """Whether a result is beyond guessing and the best baseline; it cannot be said without either, or of few clients.

    An error cannot be compared with that of a baseline that `reads` the update either, because noise makes both worse.
    A gain is slight below a fifth of the way to certainty, see `gain`. It is not shown if the interval has no width
    (equal values of a metric without a span), or if clients share messages (`summed` in each), which may make
    intervals over them too narrow.
    """
    own, entry = dict(row), metric(row["metric"])
    if own["n"] < FEWEST or not comparisons(own, results):
        return "cannot be said"
    if reads and entry.lower_is_better and entry.guessing is None:
        return "cannot be said"
    if not is_shown(own, results):
        return "not shown"
    if gain(own, results) >= _SLIGHT:
        return "yes"
    return "slightly" if own["low"] < own["high"] and summed == 1 else "not shown"


def gain(row: Mapping[str, Any], results: pd.DataFrame) -> float:
    """Share of the way from guessing or the best baseline to certainty; without either, from 0 if more is worse."""
    entry, baseline = metric(row["metric"]), best_baseline(dict(row), results)
    found = [best_guess(dict(row), results), None if baseline is None else baseline["mean"]]
    guesses = [float(value) for value in found if value is not None]
    if not guesses and entry.lower_is_better:
        return 0.0
    best, certain = min(guesses) if entry.lower_is_better else max(guesses, default=0.0), entry.certainty
    return 0.0 if best == certain else (float(row["mean"]) - best) / (certain - best)


def everyday(made: Mapping[str, Any], who: str) -> str:
    """The result in everyday words.

    Args:
        made: fields of `fedleak.reports.statement.measured.Measured`.
        who: adversary, as subject of a sentence that a client was not named in before.
    """
    name, baseline, worst = made["metric"], made["baseline"], made["worst_tenth"]
    without = ""
    if baseline is not None:
        without = "a baseline" if baseline.reads_update else "without the update"
    than = {"": "by guessing", "a baseline": "a baseline does"}.get(without, without)
    other = {"": "guessing", "a baseline": "a baseline"}.get(without, f"an answer {without}")
    inferred = made["infers"]
    start = {
        "yes": f"{who} can infer {inferred}: the best attack",
        "slightly": f"{who} can infer {inferred}, slightly better than {than}: the best attack",
        "not shown": f"No attack that ran is shown to be better than {other}: to infer {inferred}, the best one",
        "cannot be said": f"No baseline that reads no update ran to compare with. To infer {inferred}, the best attack",
    }[made["answer"]]
    if made["n"] < FEWEST:
        clients = "One client is" if made["n"] == 1 else f"{made['n']} clients are"
        start = f"{clients} too few to say whether a client's updates show {inferred}: the best attack"
    low, high = (number_in_words(name, end) for end in (made["result"].low, made["result"].high))
    compared = [f"95% interval for clients like these {low} to {high}"]
    if baseline is not None:
        compared.append(f"{without}: {number_in_words(name, baseline.result.value)}")
    if made["guessing"] is not None:
        compared.append(f"guessing: {number_in_words(name, made['guessing'])}")
    parts = [f"{start} {value_in_words(name, made['result'].value)} ({'; '.join(compared)}).{_measured_on(made)}"]
    if worst is not None and made["worst_clients"] < made["n"]:
        count = made["worst_clients"]
        those = "the client" if count == 1 else f"the {count} clients"
        baseline_text = ""
        if baseline is not None and baseline.worst_tenth is not None:
            baseline_text = f" ({without}: {number_in_words(name, baseline.worst_tenth.value)})"
        parts.append(f"For {those} about whom most is inferred: {number_in_words(name, worst.value)}{baseline_text}.")
    return " ".join(parts)


def _measured_on(made: Mapping[str, Any]) -> str:
    count, certain = made["n"], made["certain"]
    those = "one client" if count == 1 else f"{count} clients"
    if not certain:
        return f" Measured on {those}."
    if count == 1:
        return f" Measured on {those}, without an error by this measure."
    return (
        f" Measured on {those}, for {'all' if certain == count else certain} of them without an error by this measure."
    )
