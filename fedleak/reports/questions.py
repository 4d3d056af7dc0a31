"""Questions of a report, a line each: what leaks most, what is near its comparison, and what was not measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedleak.evaluation.answers import Answer, Status, leading, recorded_answers
from fedleak.evaluation.comparisons import Kind
from fedleak.evaluation.limits import Limit
from fedleak.evaluation.risk import worst_in_words
from fedleak.evaluation.run import Run
from fedleak.evaluation.scores import describe, number
from fedleak.evaluation.unanswered import unanswered
from fedleak.reports.answer_words import bits, bits_sentence, nothing_scored, verdict_on
from fedleak.reports.metric_words import number_in_words, value_in_words

WORDS: Mapping[Status, str] = {
    "leak": "leaks",
    "undecided": "not decided",
    "near": "near the baseline",
    "measured": "measured",
    "unmeasured": "not measured",
    "inapplicable": "does not apply",
}
_OUTCOMES = ("failed", "unchecked", "undecided", "ok")
"""Outcomes of the gate, the worst first."""


@dataclass(frozen=True)
class Question:
    """A line of a report.

    Attributes:
        answer: what was found.
        where: data set and run, where a report has several; empty for one.
        words: the best attack's result and what it is compared with, in words.
        numbers: the same as numbers, with the names of the attack and the metric, the worst tenth and bits.
        verdict: outcome of the gate's limits on it, the worst; empty for none.
    """

    answer: Answer
    where: str = ""
    words: str = ""
    numbers: str = ""
    verdict: str = ""

    @property
    def word(self) -> str:
        """The answer in one or two words."""
        return WORDS[self.answer.status]


def questions(
    results: pd.DataFrame,
    scores: pd.DataFrame | None = None,
    gate: Sequence[Mapping[str, Any]] = (),
) -> list[Question]:
    """The questions that results answer, in order (`Answer.place`), for each data set and run.

    Results under defences that were tried on a recording do not count.

    Args:
        results: see `fedleak.evaluation.summary.summarise`.
        scores: scores of the clients, for the worst tenth; None if they are unknown.
        gate: verdicts of the gate.
    """
    answers = leading(recorded_answers(results), scores)
    # A line names its data set and its run only where the report has several.
    several = []
    for key in ("data", "run"):
        values = {repr(answer.setting.get(key)) for answer in answers}
        if len(values) > 1:
            several.append(key)
    return [_question(answer, several, gate) for answer in answers]


def _question(answer: Answer, several: Sequence[str], gate: Sequence[Mapping[str, Any]]) -> Question:
    where = {key: answer.setting[key] for key in several if key in answer.setting}
    return Question(
        answer=answer,
        where=describe(where),
        words=_words(answer),
        numbers="; ".join(_numbers(answer)),
        verdict=_verdict(gate, answer.family, {*answer.attacks}, {answer.metric}),
    )


def first_verdict(measured: Sequence[Question], results: pd.DataFrame) -> str:
    """The verdict on the first of some questions, or that nothing was scored."""
    if measured:
        return verdict_on(measured[0].answer)
    return nothing_scored(list(dict.fromkeys(results["attack"][results["mean"].notna()])))


def first_words(measured: Sequence[Question], results: pd.DataFrame) -> str:
    """The same for a terminal, between what the update adds in bits and the best attack's result in words."""
    verdict = first_verdict(measured, results)
    if not measured:
        return verdict
    added = bits_sentence(measured[0].answer.bits)
    return " ".join(filter(None, [added, verdict, measured[0].words]))


def _words(answer: Answer) -> str:
    """What a line says in words: the best attack's result, what it is compared with, and on how many clients."""
    row = answer.row
    assert row is not None  # it was measured
    compared = ""
    if answer.comparison is not None and answer.gain is not None:
        start = number_in_words(answer.metric, answer.comparison.value)
        compared = f"; {_BESIDE[answer.comparison.kind]}: {start}"
    clients = "one client" if row["n"] == 1 else f"{row['n']} clients"
    return f"The best attack {value_in_words(answer.metric, float(row['mean']))}{compared}. On {clients}."


_BESIDE: Mapping[Kind, str] = {
    "guessing": "guessing",
    "chance": "its answers by chance",
    "prior": "without the update",
    "blind": "without the update",
    "control": "a control",
    "least": "nothing",
}
"""What a comparison is, next to a value."""


def _numbers(answer: Answer) -> list[str]:
    """The numbers of a line: the best attack's, its comparison's, the worst tenth's, and bits."""
    row = answer.row
    assert row is not None  # it was measured
    # The best attack's mean with its interval, n, and what it is the best of.
    best = f"{row['attack']}: {answer.metric} {number(row['mean'])}"
    if row["low"] != row["high"]:
        best += f" ({number(row['low'])} to {number(row['high'])})"
    best += f", n = {row['n']}"
    if len(answer.attacks) > 1:
        best += f", best of {len(answer.attacks)} attacks"
    setting = describe(answer.setting, answer.varied - {"data", "run"})
    if setting:
        best += f", at {setting}"
    numbers = [best]
    comparison = answer.comparison
    if comparison is not None and answer.gain is not None:
        # Baselines have a name; guessing and chance are values of the metric.
        compared: str = comparison.kind
        if comparison.kind in ("prior", "blind", "control"):
            compared = f"baseline {comparison.name}"
        numbers.append(f"{compared} {number(comparison.value)}")
    if len(answer.worst):
        numbers.append(f"{worst_in_words(answer.worst, int(row['n']))} {number(float(answer.worst.mean()))}")
    if answer.bits is not None:
        bits_row = answer.bits.row
        ends = f"{bits(bits_row['low'])} to {bits(bits_row['high'])}"
        if bits_row["attack"] != row["attack"]:
            ends += f", {bits_row['attack']}"
        numbers.append(f"the update adds {bits(bits_row['mean'])} bits ({ends})")
    return numbers


def _verdict(gate: Sequence[Mapping[str, Any]], family: str, attacks: set[str], metrics: set[str]) -> str:
    """The worst outcome of the limits on a question; that of a limit on all if it holds or an attack on it decides."""
    outcomes = []
    for verdict in gate:
        limit = Limit.named(verdict["metric"], verdict["limit"])
        outcome = verdict["verdict"]
        # A limit on all questions is this one's if it holds for all, or if an attack on this question decides it.
        decides = verdict.get("attack") in attacks or outcome == "ok"
        on_all = limit.question is None and limit.metric in metrics and decides
        if limit.question == family or on_all:
            outcomes.append((_OUTCOMES.index(outcome), f"{outcome} ({limit.metric} limit {limit.bound})"))
    if not outcomes:
        return ""
    _, worst = min(outcomes)
    return worst


def not_measured(run: Run, measured: Sequence[Question]) -> tuple[list[Question], list[str]]:
    """Lines on the questions that a run did not measure, and the families that it did not ask, see `unanswered`."""
    # What was left out under defences ran on the recording: its question is measured.
    reasons = {**run.not_run, **run.unrelated}
    lacking, not_asked = unanswered(reasons, [question.answer for question in measured])
    unmeasured = []
    for answer in lacking:
        verdict = _verdict(run.gate, answer.family, attacks=set(), metrics=set())
        unmeasured.append(Question(answer, verdict=verdict))
    return unmeasured, not_asked
