"""Measured and declared numbers together: clients exposed, precision and lift."""

import math
from collections.abc import Sequence
from typing import Any

from fedleak.evaluation.range import Range
from fedleak.reports.statement.measured_content import Combined, Measured, Rates
from fedleak.reports.statement.numbers import Interval, in_percent, of_range, percent, shown, with_interval
from fedleak.reports.statement.system_file import System


def combined(questions: Sequence[Measured], system: System) -> list[Combined]:
    """Clients exposed, for each question with rates and a declared prior."""
    exposures = []
    for position, question in enumerate(questions):
        prior = system.of("prior", question.question)
        if question.rates is not None and prior is not None:
            exposures.append(_combined(question, question.rates, prior, position, system))
    return exposures


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
    exposed = tpr.times(true)
    wrong = fpr.times(clients - true)
    fields: dict[str, Any] = {
        "clients": clients,
        "prior": prior,
        "true": true,
        "precision": None,
        "lift": None,
        "exposed": of_range(exposed),
        "wrong": of_range(wrong),
    }

    def precision(tpr: float, fpr: float) -> float:
        share_named = tpr * prior + fpr * (1 - prior)
        if not share_named:
            return math.nan
        return tpr * prior / share_named

    # A decision that names nobody has no precision.
    if tpr.value or fpr.value:
        precisions = Range(
            precision(tpr.value, fpr.value),
            precision(tpr.low, fpr.high),
            precision(tpr.high, fpr.low),
        )
        fields["precision"] = of_range(precisions)
        fields["lift"] = of_range(precisions.times(1 / prior))
    return fields


def _combined(question: Measured, rates: Rates, prior: float, position: int, system: System) -> Combined:
    # Without a number of clients, each person has one.
    has_clients = system.clients is not None
    fields = exposure(_range(rates.tpr), _range(rates.fpr), clients=system.clients or system.people, prior=prior)
    named = with_interval(fields["exposed"], whole=True)
    wrong = with_interval(fields["wrong"], whole=True)
    # Of those named, how many are right, and how much more often than by naming anybody.
    precision = ""
    if fields["precision"] is not None:
        lift = shown(fields["lift"].value)
        precision = f"; of those named, {percent(fields['precision'])} are right, {lift} times the declared share"
    declared = "declared" if has_clients else "declared; each person has one client"
    sentence = (
        f"Ask of each of {shown(fields['clients'], whole=True)} clients ({declared}): {rates.asks} At the declared"
        f" share of {in_percent(prior)}, the answer is yes for {shown(fields['true'], whole=True)}. At the measured"
        f" rates, the server names {named} of these and, wrongly, {wrong} others{precision}."
    )
    sources = [
        f"measured[{position}].rates.tpr",
        f"measured[{position}].rates.fpr",
        "declared.clients" if has_clients else "declared.people",
        "declared.prior",
    ]
    return Combined(
        question=question.question,
        estimate=question.estimate,
        **fields,
        sources=sources,
        sentence=sentence,
    )


def _range(interval: Interval) -> Range:
    """Range of measured rates, which are finite."""
    assert interval.value is not None
    assert interval.low is not None
    assert interval.high is not None
    return Range(float(interval.value), float(interval.low), float(interval.high))
