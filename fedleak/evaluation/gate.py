"""Gate of a CI job: limits on what attacks may infer from a recording.

A limit applies to every attack, or to those of one question; baselines are exempt. An attack's interval decides: the
limit holds if the whole interval is on the safe side, and is exceeded if the whole interval is beyond; otherwise it is
undecided, as it is over few clients, in a round that is beyond the limit, and where a mean hides some clients. A limit
is about clients like the recorded ones, which is an inference, or about the clients of the recording, which is a fact
where all of them were attacked. A metric with `worst_client` is limited for each client instead. A limit may also be
one on a difference: between a run and a reference, and between attacks and the best baseline. What was not measured
does not pass.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from fedleak.core.attack import Attack
from fedleak.evaluation.audited_results import AuditedResults
from fedleak.evaluation.changes import Changes
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.gate_sentences import message_on_limit, not_run_sentence, shown_ends, worst_tenth_sentence
from fedleak.evaluation.gate_values import values_against
from fedleak.evaluation.learner_check import simulates
from fedleak.evaluation.limited_value import LimitedValue
from fedleak.evaluation.limits import Limit
from fedleak.evaluation.unmeasured_limits import BITS, measured_metric, why_unmeasured, without_bits

FAILED = 3
"""Exit status if an attack exceeds a limit."""
UNCHECKED = 4
"""Exit status if no limit is exceeded, but no attack measured one."""
UNDECIDED = 5
"""Exit status if no limit is exceeded and all were measured, but too few clients decide one."""
Outcome = Literal["ok", "failed", "unchecked", "undecided"]
About = Literal["clients", "recording"]
"""Whom limits are about: clients like the recorded ones, or the clients of this recording."""
_STATUS: Mapping[str, int] = {"failed": FAILED, "unchecked": UNCHECKED, "undecided": UNDECIDED}
"""Exit status by outcome, the first to be found decides."""


@dataclass(frozen=True)
class Verdict:
    """Outcome of one limit.

    Attributes:
        metric: limited metric, after its question and a slash if the limit names one.
        limit: largest value allowed; smallest if the metric is lower for more leakage.
        attack: label of the attack that decides, None if none was scored.
        value: mean of that attack over clients, or value of its worst client; None if there is none.
        low: lower end of the value's interval, None if it has none.
        high: upper end.
        n: number of clients.
        verdict: ``ok``, ``failed``, ``undecided`` (the interval contains the limit) or ``unchecked`` (no value).
        message: line to print.
        about: whom the verdict is about: ``clients`` like the recorded ones (an inference), or ``recording``, the
            clients of this recording (a fact where all of them were attacked).
        setting: setting in which that attack decides, of what differs between results.
        round: round whose mean decides; None for all rounds.
    """

    metric: str
    limit: float
    attack: str | None
    value: float | None
    low: float | None
    high: float | None
    n: int
    verdict: Outcome
    message: str
    about: About = "clients"
    setting: Mapping[str, Any] = field(default_factory=dict)
    round: int | None = None


Gate = Callable[[pd.DataFrame, Evaluation], list[Verdict]]
"""Function from results (see `fedleak.evaluation.summary.summarise`) and their evaluation to verdicts."""


class LimitError(AssertionError):
    """Limits that do not hold; the message has the gate's sentences, and `verdicts` has all verdicts."""

    def __init__(self, verdicts: Sequence[Verdict]) -> None:
        super().__init__("\n".join(verdict.message for verdict in verdicts))
        self.verdicts = verdicts


def gate(
    limits: Sequence[Limit],
    attacks: Sequence[Attack],
    changes_of: Callable[[Evaluation], Changes] | None = None,
    recorded: int | None = None,
) -> Gate:
    """Function that checks limits on the results of attacks.

    Args:
        limits: limits that `fedleak.evaluation.limits.check_limits` accepts.
        attacks: attacks of the audit.
        changes_of: what changed in an evaluation from a reference, for limits on ``change``; None without a reference.
        recorded: number of clients of the recording, where limits are about these clients; None where they are about
            clients like these.
    """

    def check(results: pd.DataFrame, evaluation: Evaluation) -> list[Verdict]:
        audited = AuditedResults(results, evaluation, attacks, changes_of, recorded)
        return [_verdict(limit, audited) for limit in limits]

    return check


def gate_status(outcomes: Sequence[str]) -> int:
    """Exit status of the verdicts' outcomes: `FAILED` before `UNCHECKED` before `UNDECIDED` before 0."""
    for outcome, status in _STATUS.items():
        if outcome in outcomes:
            return status
    return 0


def _verdict(limit: Limit, audited: AuditedResults) -> Verdict:
    """The verdict on one limit: that of the attack that decides, unless that says too little."""
    against_limit = values_against(limit, audited)
    defined = [value for value in against_limit.values if not math.isnan(value.value)]
    if defined:
        verdict = _decided(limit, defined, against_limit.left_out, audited)
    else:
        verdict = _unmeasured(limit, against_limit.left_out, audited)
    why_not = _why_no_proof(limit, verdict.verdict, audited)
    if not why_not:
        return verdict
    message = f"gate could not be checked: {limit.name}, because {why_not}"
    return dataclasses.replace(verdict, verdict="unchecked", message=message)


def _unmeasured(limit: Limit, left_out: str, audited: AuditedResults) -> Verdict:
    """The verdict where there is no value."""
    return Verdict(
        metric=limit.name,
        limit=limit.bound,
        attack=None,
        value=None,
        low=None,
        high=None,
        n=0,
        verdict="unchecked",
        message=f"gate could not be checked: {left_out or _why_unmeasured(limit, audited)}",
        about="clients" if audited.recorded_for(limit) is None else "recording",
    )


def _why_unmeasured(limit: Limit, audited: AuditedResults) -> str:
    """Why there is no value."""
    results, evaluation = audited.results, audited.evaluation
    if audited.rows(limit):
        return f"{limit.name} is not defined for any of these clients"
    attacks = audited.attacks_of(limit)
    measured_instead = measured_metric(limit, results, attacks)
    if limit.metric == BITS and not results.empty:
        lacking_bits = without_bits(limit, results, attacks)
        if lacking_bits:
            return f"{measured_instead}no attack measured {limit.name}: {lacking_bits}"
    ran = set() if results.empty else {*results["name"]}
    reasons = {**evaluation.unrelated, **evaluation.missing}
    return measured_instead + why_unmeasured(limit, attacks, reasons, ran)


def _decided(limit: Limit, values: Sequence[LimitedValue], left_out: str, audited: AuditedResults) -> Verdict:
    """The verdict by some values, none of which is NaN."""
    outcome, deciding = _deciding(limit, values)
    low, high = shown_ends(limit, deciding)
    recorded = audited.recorded_for(limit)
    # The interval of the value is widened for as many tests as there are attacks and settings under the limit.
    tests = len(values) if limit.is_relative else len(audited.rows(limit))
    message = message_on_limit(limit, outcome, deciding, tests, recorded)
    # A limit that holds comes with what it says nothing about.
    if outcome == "ok" and limit.is_relative and left_out:
        message += f"; {left_out}"
    if outcome == "ok" and not limit.is_relative:
        message += worst_tenth_sentence(limit, audited) + not_run_sentence(limit, audited)
    return Verdict(
        metric=limit.name,
        limit=limit.bound,
        attack=deciding.measured_by.attack,
        value=limit.sign * deciding.value,
        low=low,
        high=high,
        n=deciding.n,
        verdict=outcome,
        message=message,
        about="clients" if recorded is None else "recording",
        setting=deciding.measured_by.setting,
        round=deciding.measured_by.round,
    )


def _deciding(limit: Limit, values: Sequence[LimitedValue]) -> tuple[Outcome, LimitedValue]:
    """The worst outcome is that of the limit, and of the values that have it, the one nearest to the leak decides."""
    outcomes = [_outcome(value, limit.signed_bound) for value in values]
    worst: Outcome = next(outcome for outcome in ("failed", "undecided", "ok") if outcome in outcomes)
    candidates = [value for value, outcome in zip(values, outcomes, strict=True) if outcome == worst]
    # What is undecided is so by its interval, hence by the end nearest to the leak; the others, by their value.
    if worst == "undecided":
        return worst, max(candidates, key=lambda value: value.leaky)
    return worst, max(candidates, key=lambda value: value.value)


def _outcome(value: LimitedValue, signed_bound: float) -> Outcome:
    if not value.enough:
        return "undecided"
    # The whole interval is beyond the limit.
    if value.safe > signed_bound:
        if value.excuse is None:
            return "failed"
        return "undecided"
    # The whole interval is on the safe side; in between, the interval contains the limit.
    if value.leaky <= signed_bound and value.doubt is None:
        return "ok"
    return "undecided"


def _why_no_proof(limit: Limit, outcome: Outcome, audited: AuditedResults) -> str:
    """Why an outcome says too little, although attacks gave values; empty for no reason."""
    mismatch = audited.evaluation.mismatch
    if mismatch is not None and outcome != "failed":
        # Attacks that simulate a learner that is wrong infer too little, so that only what fails is shown.
        measured = {row["attack"] for row in audited.rows(limit)}
        for attack in audited.attacks:
            if attack.name in measured and simulates(attack):
                return mismatch
    if limit.metric == BITS and outcome == "ok":
        lacking = without_bits(limit, audited.results, audited.attacks)
        if lacking:
            return f"{lacking}; limit one question, e.g. composition/bits=5, or these by another metric"
    return ""
