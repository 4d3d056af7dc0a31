"""First table of a what-if: which defence keeps which limit, what it leaves of the leak, and of the learning."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedleak.core.metric_table import metric
from fedleak.evaluation.advice import NOT_SEEN
from fedleak.evaluation.answers import Answer, answers, leading
from fedleak.evaluation.as_recorded import COSINE, DEFENCE, NONE
from fedleak.evaluation.result_names import LOSS
from fedleak.evaluation.scores import SETTING, number
from fedleak.reports.metric_words import number_in_words, value_in_words
from fedleak.reports.tables import ReportTable

_QUESTIONS = 2
"""Most questions with a column of their own: those that go furthest without a defence."""
_COLUMN = SETTING + DEFENCE
_WORDS = {"ok": "kept", "failed": "exceeded", "undecided": "undecided", "unchecked": "not measured"}


def defence_table(results: pd.DataFrame, outcomes: Mapping[str, Mapping[str, str]]) -> ReportTable | None:
    """The table; None where no defence was tried on the recording.

    Defences that keep more limits come first, of these the ones that leave most of the round's learning.

    Args:
        results: results with a row for each defence, see `fedleak.evaluation.what_if`.
        outcomes: by defence the outcome of each limit by its name; empty without limits.
    """
    if not (results["metric"] == COSINE).any():
        return None
    # Learning that a defence leaves: the loss after the round where it was measured, else the mean update's direction.
    learning = LOSS if (results["metric"] == LOSS).any() else COSINE
    signal_by_defence = results[results["metric"] == learning].groupby(_COLUMN, sort=False)["mean"].mean()
    by_defence: dict[str, list[Answer]] = {}
    for answer in answers(results):
        by_defence.setdefault(str(answer.setting.get(DEFENCE)), []).append(answer)
    leading_questions = leading(by_defence.get(NONE, []))[:_QUESTIONS]
    rows: list[tuple[tuple[bool, int, float], dict[str, Any]]] = []
    for defence, signal in signal_by_defence.items():
        limits = outcomes.get(str(defence), {})
        row: dict[str, Any] = {"defence": "none, as recorded" if defence == NONE else str(defence)}
        for limit, outcome in limits.items():
            row[f"limit {limit}"] = _WORDS.get(outcome, outcome)
        for question in leading_questions:
            row[_column_of(question)] = _value(question, by_defence.get(str(defence), []))
        row["loss after the round" if learning == LOSS else "cosine of the mean update"] = number(float(signal))
        # The recording as it is, then by limits kept, then by learning: a lower loss and a larger cosine are more.
        limits_kept = sum(outcome == "ok" for outcome in limits.values())
        least_learning_last = float(signal) if learning == LOSS else -float(signal)
        rows.append(((defence != NONE, -limits_kept, least_learning_last), row))
    rows.sort(key=lambda keyed_row: keyed_row[0])
    caption = _caption(leading_questions, learning, has_limits=bool(outcomes))
    return ReportTable("defences", caption, pd.DataFrame([row for _, row in rows]))


def _column_of(question: Answer) -> str:
    """Head of the column of a question, with the direction in which its numbers leak more."""
    direction = "less" if metric(question.metric).lower_is_better else "more"
    return f"{_inferred(question)} ({direction} leaks more)"


def _inferred(question: Answer) -> str:
    return f"{question.inferred[:1].upper()}{question.inferred[1:]}"


def _value(question: Answer, under: Sequence[Answer]) -> str:
    """The best attack's value on a question under a defence, in the unit of the metric's words."""
    same = [answer for answer in under if (answer.question, answer.metric) == (question.question, question.metric)]
    best = next(iter(leading(same)), None)
    if best is None or best.row is None:
        return "not measured"
    return number_in_words(best.metric, float(best.row["mean"]))


def _caption(questions: Sequence[Answer], learning: str, *, has_limits: bool) -> str:
    """What the columns are."""
    sentences = []
    if not has_limits:
        sentences.append("Set limits (--gate METRIC=LIMIT) to see which defence keeps them.")
    for question in questions:
        if question.row is None:
            continue
        best = value_in_words(question.metric, float(question.row["mean"]))
        without = ""
        if question.comparison is not None:
            without = f", without the update {number_in_words(question.metric, question.comparison.value)}"
        sentences.append(f"{_inferred(question)}: as recorded, the best attack {best}{without}.")
    if learning == LOSS:
        sentences.append("A lower loss after the round is more learning.")
    else:
        sentences.append("A cosine of 1 leaves the round's mean update as it is.")
    return " ".join([*sentences, NOT_SEEN])
