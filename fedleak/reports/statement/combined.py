"""Measured and declared numbers together: clients exposed, precision and lift."""

import math
from collections.abc import Sequence
from typing import Any

from fedleak.evaluation.range import Range
from fedleak.reports.statement.content import Combined, Measured, Rates
from fedleak.reports.statement.numbers import Interval, in_percent, of_range, percent, shown, with_interval
from fedleak.reports.statement.system_file import System


def combined(questions: Sequence[Measured], system: System) -> list[Combined]:
    """Clients exposed, for each question with rates and a declared prior."""
    found = []
    for position, one in enumerate(questions):
        prior = system.of("prior", one.question)
        if one.rates is not None and prior is not None:
            found.append(_combined(one, one.rates, prior, position, system))
    return found


def why_not_combined(questions: Sequence[Measured]) -> str:
    """Why none of some questions has clients exposed, as a clause; none of them has rates and a declared prior."""
    if not questions:
        return "nothing is shown to be inferred"
    ranked = [question.infers for question in questions if question.rates is not None]
    if ranked:
        return f"the declaration has no share of clients for whom the answer is yes for: {'; '.join(ranked)}"
    return "no attack that was measured names single answers at an acceptable false-positive rate"


def exposure(tpr: Range, fpr: Range, *, clients: int, prior: float) -> dict[str, Any]:
    """Fields of `Combined` on the exposure of clients to a decision with measured rates.

    ``exposed = TPR * prior * clients`` and ``precision = TPR * prior / (TPR * prior + FPR * (1 - prior))``. The
    precision's interval takes the unfavourable ends of both rates, so it covers at least 90%.

    Args:
        tpr: true-positive rate of the decision.
        fpr: false-positive rate.
        clients: number of clients.
        prior: share of them of whom the answer is yes.
    """
    true = clients * prior
    found: dict[str, Any] = {"clients": clients, "prior": prior, "true": true, "precision": None, "lift": None}
    found |= {"exposed": of_range(tpr.times(true)), "wrong": of_range(fpr.times(clients - true))}

    def precision(tpr: float, fpr: float) -> float:
        named = tpr * prior + fpr * (1 - prior)
        return tpr * prior / named if named else math.nan

    if tpr.value or fpr.value:
        right = Range(precision(tpr.value, fpr.value), precision(tpr.low, fpr.high), precision(tpr.high, fpr.low))
        found |= {"precision": of_range(right), "lift": of_range(right.times(1 / prior))}
    return found


def _combined(one: Measured, rates: Rates, prior: float, position: int, system: System) -> Combined:
    given = "declared.people" if system.clients is None else "declared.clients"
    made = exposure(_range(rates.tpr), _range(rates.fpr), clients=system.clients or system.people, prior=prior)
    named, wrong = (with_interval(made[name], whole=True) for name in ("exposed", "wrong"))
    right = ""
    if made["precision"] is not None:
        lift = shown(made["lift"].value)
        right = f"; of those named, {percent(made['precision'])} are right, {lift} times the declared share"
    each = "; each person has one client" if system.clients is None else ""
    sentence = (
        f"Ask of each of {shown(made['clients'], whole=True)} clients (declared{each}): {rates.asks} At the declared"
        f" share of {in_percent(prior)}, the answer is yes for {shown(made['true'], whole=True)}. At the measured"
        f" rates, the server names {named} of these and, wrongly, {wrong} others{right}."
    )
    sources = [*(f"measured[{position}].rates.{rate}" for rate in ("tpr", "fpr")), given, "declared.prior"]
    return Combined(question=one.question, estimate=one.estimate, **made, sources=sources, sentence=sentence)


def _range(found: Interval) -> Range:
    """Range of measured rates, which are finite."""
    value, low, high = (float(one) for one in (found.value, found.low, found.high) if one is not None)
    return Range(value, low, high)
