"""The result of a question in everyday words."""

from collections.abc import Mapping
from typing import Any

from fedleak.evaluation.answers import Answer as Answered
from fedleak.evaluation.comparisons import NEAR
from fedleak.evaluation.limits import FEWEST
from fedleak.reports.metric_words import number_in_words, value_in_words
from fedleak.reports.statement.content import Answer


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
    return "slightly" if row["low"] < row["high"] and summed == 1 else "not shown"


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
