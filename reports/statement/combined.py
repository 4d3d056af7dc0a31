"""Measured and declared numbers together: people exposed, precision and lift."""

from collections.abc import Sequence

from evaluation.risk import Range, exposure
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


def _combined(question: str, rates: Rates, prior: float, position: int, people: int) -> Combined:
    made = exposure(_range(rates.tpr), _range(rates.fpr), people=people, prior=prior)
    exposed, wrong = of_range(made.exposed), of_range(made.wrong)
    precision, lift = (None if one is None else of_range(one) for one in (made.precision, made.lift))
    right = (
        ""
        if precision is None or lift is None
        else (f"; {with_interval(precision)} of those named are right, {shown(lift.value)} times the prior")
    )
    return Combined(
        question=question,
        people=people,
        prior=prior,
        true=made.true,
        exposed=exposed,
        wrong=wrong,
        precision=precision,
        lift=lift,
        sources=[
            *(f"measured[{position}].rates.{rate}" for rate in ("tpr", "fpr")),
            "declared.people",
            "declared.prior",
        ],
        sentence=(
            f"Ask of each of {people:,} people: {rates.asks} At the declared prior of {prior:g}, the answer is yes for"
            f" {made.true:,.0f}. At the measured rates, the server names {with_interval(exposed, whole=True)} of them"
            f" and wrongly {with_interval(wrong, whole=True)} others{right}."
        ),
    )


def _range(found: Interval) -> Range:
    """Range of measured rates, which are finite."""
    value, low, high = (float(one) for one in (found.value, found.low, found.high) if one is not None)
    return Range(value, low, high)
