"""The result of a question in everyday words."""

from collections.abc import Mapping
from typing import Any

from fedleak.evaluation.answers import Answer as Answered
from fedleak.evaluation.comparisons import NEAR
from fedleak.evaluation.limits import FEWEST
from fedleak.reports.metric_words import number_in_words, value_in_words
from fedleak.reports.statement.measured_content import Answer, Baseline


def answer_in_a_word(answer: Answered, *, summed: int = 1) -> Answer:
    """Whether a result is beyond what it is compared with; it cannot be said without a comparison, or of few clients.

    A gain is slight below a fifth of the way to certainty (`fedleak.evaluation.comparisons.NEAR`). A slight one is not
    shown if the interval has no width (equal values of a metric without a span), or if clients share messages (`summed`
    in each), which may make intervals over them too narrow.
    """
    row = answer.row
    if row is None or row["n"] < FEWEST or answer.comparison is None:
        return "cannot be said"
    if not answer.is_shown:
        return "not shown"
    if answer.gain is not None and answer.gain >= NEAR:
        return "yes"
    # A small gain rests on the interval, so the interval must be one that can be trusted.
    if row["low"] < row["high"] and summed == 1:
        return "slightly"
    return "not shown"


def everyday(measured: Mapping[str, Any], who: str) -> str:
    """The result in everyday words.

    Args:
        measured: fields of `fedleak.reports.statement.measured.Measured`.
        who: adversary, as subject of a sentence that a client was not named in before.
    """
    name = measured["metric"]
    baseline = measured["baseline"]
    value = value_in_words(name, measured["result"].value)
    # The best attack's value; in brackets its interval and what it is compared with, in the same words.
    low = number_in_words(name, measured["result"].low)
    high = number_in_words(name, measured["result"].high)
    compared = [f"95% interval for clients like these {low} to {high}"]
    if baseline is not None:
        compared.append(f"{_baseline_in_words(baseline)}: {number_in_words(name, baseline.result.value)}")
    if measured["guessing"] is not None:
        compared.append(f"guessing: {number_in_words(name, measured['guessing'])}")
    sentence = f"{_start(measured, who)} {value} ({'; '.join(compared)}).{_measured_on(measured)}"
    # Of few clients, the worst tenth is all of them, and says nothing more.
    worst = measured["worst_tenth"]
    count = measured["worst_clients"]
    if worst is None or count >= measured["n"]:
        return sentence
    clients = "the client" if count == 1 else f"the {count} clients"
    of_worst = f"For {clients} about whom most is inferred: {number_in_words(name, worst.value)}"
    if baseline is not None and baseline.worst_tenth is not None:
        of_worst += f" ({_baseline_in_words(baseline)}: {number_in_words(name, baseline.worst_tenth.value)})"
    return f"{sentence} {of_worst}."


def _start(measured: Mapping[str, Any], who: str) -> str:
    """Start of the sentence, up to the value: the answer to the question in words."""
    inferred = measured["infers"]
    count = measured["n"]
    if count < FEWEST:
        clients = "One client is" if count == 1 else f"{count} clients are"
        return f"{clients} too few to say whether a client's updates show {inferred}: the best attack"
    # What it is better than: guessing, a baseline that reads the update, or an answer without the update.
    if measured["baseline"] is None:
        than = "by guessing"
        compared = "guessing"
    elif measured["baseline"].reads_update:
        than = "a baseline does"
        compared = "a baseline"
    else:
        than = "without the update"
        compared = "an answer without the update"
    starts = {
        "yes": f"{who} can infer {inferred}: the best attack",
        "slightly": f"{who} can infer {inferred}, slightly better than {than}: the best attack",
        "not shown": f"No attack that ran is shown to be better than {compared}: to infer {inferred}, the best one",
        "cannot be said": f"No baseline that reads no update ran to compare with. To infer {inferred}, the best attack",
    }
    return starts[measured["answer"]]


def _baseline_in_words(baseline: Baseline) -> str:
    return "a baseline" if baseline.reads_update else "without the update"


def _measured_on(measured: Mapping[str, Any]) -> str:
    """On how many clients it was measured, and for how many of them the attack is perfect."""
    count = measured["n"]
    certain = measured["certain"]
    clients = "one client" if count == 1 else f"{count} clients"
    if not certain:
        return f" Measured on {clients}."
    if count == 1:
        return f" Measured on {clients}, without an error by this measure."
    how_many = "all" if certain == count else certain
    return f" Measured on {clients}, for {how_many} of them without an error by this measure."
