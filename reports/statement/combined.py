"""Measured and declared numbers together: people exposed, precision and lift."""

import math
from collections.abc import Sequence
from typing import Any

from evaluation.risk import Range
from reports.statement.measured import Measured, Rates
from reports.statement.numbers import Interval, Strict, of_range, shown, with_interval
from reports.statement.system_file import System


class Combined(Strict):
    """What a measured and declared numbers give together."""

    question: str
    """family of attacks"""
    people: int
    """declared number of people"""
    prior: float
    """declared share of them of whom the answer is yes"""
    true: float
    """prior * people"""
    exposed: Interval
    """tpr * prior * people: of these, those whom the attack names"""
    wrong: Interval
    """fpr * (1 - prior) * people: others whom it names"""
    precision: Interval | None
    """share of the named for whom the answer is yes; null if nobody is named"""
    lift: Interval | None
    """precision / prior"""
    sources: list[str]
    """where the numbers are in this file"""
    sentence: str
    """the result in a sentence"""


def combined(questions: Sequence[Measured], system: System) -> list[Combined]:
    """People exposed, for each question with rates and a declared prior."""
    found = []
    for position, one in enumerate(questions):
        prior = system.of("prior", one.question)
        if one.rates is not None and prior is not None:
            found.append(_combined(one.question, one.rates, prior, position, system.people))
    return found


def exposure(tpr: Range, fpr: Range, *, people: int, prior: float) -> dict[str, Any]:
    """Fields of `Combined` on the exposure of people to a decision with measured rates.

    ``exposed = TPR * prior * people`` and ``precision = TPR * prior / (TPR * prior + FPR * (1 - prior))``. The
    precision's interval takes the unfavourable ends of both rates, so it covers at least 90%.

    Args:
        tpr: true-positive rate of the decision.
        fpr: false-positive rate.
        people: number of people.
        prior: share of them of whom the answer is yes.
    """
    true = people * prior
    found: dict[str, Any] = {"people": people, "prior": prior, "true": true, "precision": None, "lift": None}
    found |= {"exposed": of_range(tpr.times(true)), "wrong": of_range(fpr.times(people - true))}

    def precision(tpr: float, fpr: float) -> float:
        named = tpr * prior + fpr * (1 - prior)
        return tpr * prior / named if named else math.nan

    if tpr.value or fpr.value:
        right = Range(precision(tpr.value, fpr.value), precision(tpr.low, fpr.high), precision(tpr.high, fpr.low))
        found |= {"precision": of_range(right), "lift": of_range(right.times(1 / prior))}
    return found


def _combined(question: str, rates: Rates, prior: float, position: int, people: int) -> Combined:
    made = exposure(_range(rates.tpr), _range(rates.fpr), people=people, prior=prior)
    named, wrong = (with_interval(made[name], whole=True) for name in ("exposed", "wrong"))
    right = ""
    if made["precision"] is not None:
        lift = shown(made["lift"].value)
        right = f"; {with_interval(made['precision'])} of those named are right, {lift} times the prior"
    sentence = (
        f"Ask of each of {people:,} people: {rates.asks} At the declared prior of {prior:g}, the answer is yes for"
        f" {made['true']:,.0f}. At the measured rates, the server names {named} of them and wrongly {wrong} others"
        f"{right}."
    )
    sources = [*(f"measured[{position}].rates.{rate}" for rate in ("tpr", "fpr")), "declared.people", "declared.prior"]
    return Combined(question=question, **made, sources=sources, sentence=sentence)


def _range(found: Interval) -> Range:
    """Range of measured rates, which are finite."""
    value, low, high = (float(one) for one in (found.value, found.low, found.high) if one is not None)
    return Range(value, low, high)
