"""First screen of a page, for a stranger: what leaks most, compared with what, on whom, and what to do."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedleak.core.metric_table import metric
from fedleak.evaluation.answers import Answer
from fedleak.evaluation.comparisons import Kind, baselines_of
from fedleak.evaluation.scores import number
from fedleak.reports.metric_words import number_in_words, value_in_words

_NAMED = 3
"""Most baselines that are named where none ran."""


@dataclass(frozen=True)
class FirstLine:
    """One of the lines below the verdict: what it is about, and its text."""

    name: str
    text: str


def first_lines(answer: Answer, todo: str) -> list[FirstLine]:
    """What the best attack on the first question infers, compared with what, on whom, and what to do.

    Args:
        answer: the first answer of a report.
        todo: what to do; empty for nothing.
    """
    lines = [
        FirstLine("best attack", f"It {in_words(answer)}."),
        FirstLine("compared with", compared_in_words(answer)),
        FirstLine("measured on", measured_on(answer)),
    ]
    if todo:
        lines.append(FirstLine("what to do", todo))
    return lines


def in_words(answer: Answer) -> str:
    """The best attack's result, as the predicate of a sentence."""
    row = answer.row
    assert row is not None  # it was measured
    return value_in_words(answer.metric, float(row["mean"]))


def compared_in_words(answer: Answer) -> str:
    """What the best attack is compared with, and its value in the same words."""
    comparison = answer.comparison
    if comparison is None:
        named = ", ".join(baselines_of(answer.question)[:_NAMED])
        such = f" ({named})" if named else ""
        return (
            f"Nothing: no baseline of this question ran{such}, so it cannot be said whether the update adds anything."
        )
    if comparison.kind == "least":
        return "Nothing: the question has no baseline; 0 is what an attack without any knowledge reaches."
    value = value_in_words(answer.metric, comparison.value)
    # A baseline that did not run in this setting may have run in another one.
    elsewhere = " (measured in another setting of the same data)" if comparison.elsewhere else ""
    return f"{_WHOSE[comparison.kind]} {value}{elsewhere}."


_WHOSE: Mapping[Kind, str] = {
    "guessing": "Guessing, which",
    "chance": "What the attack's own answers reach by chance: it",
    "prior": "The best answer without the update, which",
    "blind": "The best answer without the update, which",
    "control": "A control on updates that say nothing more of the client, which",
}
"""Start of a sentence on each kind of comparison that has a value of its own."""


def measured_on(answer: Answer) -> str:
    """On how many clients it was measured, what it is for clients like these, and for the most exposed of them."""
    row = answer.row
    name = answer.metric
    assert row is not None  # it was measured
    clients = "One client" if row["n"] == 1 else f"{row['n']} clients"
    parts = [clients]
    # A single client, and clients with equal values, have no interval: its ends are NaN or equal.
    has_interval = not math.isnan(row["low"]) and not math.isnan(row["high"]) and row["low"] < row["high"]
    if has_interval:
        low = _scaled(name, float(row["low"]))
        high = _scaled(name, float(row["high"]))
        parts.append(f"for clients like these {low} to {high} (95% interval)")
    # The worst tenth of few clients are all of them, and say nothing more.
    if 0 < len(answer.worst) < row["n"]:
        parts.append(f"the {len(answer.worst)} most exposed of them: {_scaled(name, float(answer.worst.mean()))}")
    return f"{'; '.join(parts)}."


def _scaled(name: str, value: float) -> str:
    """A value in the unit of the metric's words, or with its name's digits."""
    if metric(name).words:
        return number_in_words(name, value)
    return number(value)


def what_to_do(
    first: Answer | None, *, advice: str, is_one_recording: bool, has_gate: bool, lacks_data: bool = False
) -> str:
    """The next step after a report, by what its first answer is.

    Args:
        first: the first answer; None where nothing was measured.
        advice: what a what-if says of its defences; empty where none were tried.
        is_one_recording: whether the report is of one recording, which can be audited again.
        has_gate: whether limits were set.
        lacks_data: whether questions were not measured, for which more could be recorded.
    """
    if advice:
        return advice
    if first is None or first.row is None:
        return "Record what the questions below lack (docs/audit/record-your-system.md)."
    # A leak: of the auditor's own recording, what lowers it; of a table or several runs, the auditor's own system.
    if first.status == "leak":
        if not is_one_recording:
            return "Audit your own system in the same way: fedleak audit DIR (docs/start/audit-your-system.md)."
        further = " Record what the questions lack that matter to your system." if lacks_data else ""
        return (
            "See what defences would change, without a new training: fedleak audit DIR --what-if FILE"
            f" (docs/audit/what-if.md).{further}"
        )
    # Not decided: for want of a baseline, or of clients.
    if first.comparison is None and first.status == "undecided":
        return "Run the baselines of the question too: fedleak audit DIR runs all attacks and baselines."
    if first.status == "undecided":
        return "Record and attack more clients or rounds: these do not decide it."
    # Near the baseline: a gate keeps it so.
    if has_gate or not is_one_recording or first.status == "measured":
        return ""
    return "Keep it so: fedleak audit DIR --gate METRIC=LIMIT fails a CI job (docs/audit/gate.md)."


def order_of_changes(data: Sequence[str]) -> bool:
    """Whether a page begins with what changed: runs of one data set are compared, others stand beside each other."""
    return len(set(data)) == 1
