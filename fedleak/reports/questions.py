"""Questions of a report, a line each: what leaks most, what is near its comparison, and what was not measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedleak.evaluation.answers import Answer, Status, leading, recorded_answers, unanswered
from fedleak.evaluation.comparisons import Kind
from fedleak.evaluation.limits import Limit
from fedleak.evaluation.risk import worst_in_words
from fedleak.evaluation.run import Run
from fedleak.evaluation.scores import describe, number
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
    places = [{key: answer.setting.get(key) for key in ("data", "run")} for answer in answers]
    several = [key for key in ("data", "run") if len({repr(place[key]) for place in places}) > 1]
    return [_line(answer, several, gate) for answer in answers]


def _line(answer: Answer, several: Sequence[str], gate: Sequence[Mapping[str, Any]]) -> Question:
    where = {key: answer.setting[key] for key in several if key in answer.setting}
    return Question(
        answer=answer,
        where=describe(where),
        words=_words(answer),
        numbers="; ".join(_numbers(answer)),
        verdict=_verdict(gate, answer.family, {*answer.attacks}, {answer.metric}),
    )


def first_verdict(lines: Sequence[Question], results: pd.DataFrame) -> str:
    """The verdict on the first of some questions, or that nothing was scored."""
    if lines:
        return verdict_on(lines[0].answer)
    return nothing_scored(list(dict.fromkeys(results["attack"][results["mean"].notna()])))


def first_words(lines: Sequence[Question], results: pd.DataFrame) -> str:
    """The same for a terminal, between what the update adds in bits and the best attack's result in words."""
    added = bits_sentence(lines[0].answer.bits) if lines else ""
    words = lines[0].words if lines else ""
    return " ".join(filter(None, [added, first_verdict(lines, results), words]))


def _words(answer: Answer) -> str:
    """What a line says in words: the best attack's result, what it is compared with, and on how many clients."""
    row = answer.row
    assert row is not None  # it was measured
    comparison = answer.comparison if answer.gain is not None else None
    compared = ""
    if comparison is not None:
        start = number_in_words(answer.metric, comparison.value)
        compared = f"; {_BESIDE[comparison.kind]}: {start}"
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
    row, name = answer.row, answer.metric
    assert row is not None  # it was measured
    among = f", best of {len(answer.attacks)} attacks" if len(answer.attacks) > 1 else ""
    setting = describe(answer.setting, answer.varied - {"data", "run"})
    among += f", at {setting}" if setting else ""
    interval = "" if row["low"] == row["high"] else f" ({number(row['low'])} to {number(row['high'])})"
    numbers = [f"{row['attack']}: {name} {number(row['mean'])}{interval}, n = {row['n']}{among}"]
    comparison = answer.comparison if answer.gain is not None else None
    if comparison is not None:
        is_line = comparison.kind in ("prior", "blind", "control")
        compared = f"baseline {comparison.name}" if is_line else comparison.kind
        numbers.append(f"{compared} {number(comparison.value)}")
    if len(answer.worst):
        numbers.append(f"{worst_in_words(answer.worst, int(row['n']))} {number(float(answer.worst.mean()))}")
    if answer.bits is not None:
        gained = answer.bits.row
        whose = "" if gained["attack"] == row["attack"] else f", {gained['attack']}"
        ends = f"({bits(gained['low'])} to {bits(gained['high'])}{whose})"
        numbers.append(f"the update adds {bits(gained['mean'])} bits {ends}")
    return numbers


def _verdict(gate: Sequence[Mapping[str, Any]], family: str, attacks: set[str], metrics: set[str]) -> str:
    """The worst outcome of the limits on a question; that of a limit on all if it holds or an attack on it decides."""
    outcomes = []
    for verdict in gate:
        limit, outcome = Limit.named(verdict["metric"], verdict["limit"]), verdict["verdict"]
        decides = verdict.get("attack") in attacks or outcome == "ok"
        on_all = limit.question is None and limit.metric in metrics and decides
        if limit.question == family or on_all:
            outcomes.append((_OUTCOMES.index(outcome), f"{outcome} ({limit.metric} limit {limit.bound})"))
    return min(outcomes)[1] if outcomes else ""


def not_measured(run: Run, measured: Sequence[Question]) -> tuple[list[Question], list[str]]:
    """Lines on the questions that a run did not measure, and the families that it did not ask, see `unanswered`."""
    # What was left out under defences ran on the recording: its question is measured.
    reasons = {**run.not_run, **run.unrelated}
    lacking, not_asked = unanswered(reasons, [line.answer for line in measured])
    lines = [Question(answer, verdict=_verdict(run.gate, answer.family, set(), set())) for answer in lacking]
    return lines, not_asked
