"""Gate of a CI job: limits on what attacks may infer from a recording.

A limit applies to every attack, or to those of one question; baselines are exempt. An attack's interval decides: the
limit holds if the whole interval is on the safe side, and is exceeded if the whole interval is beyond; otherwise it is
undecided, as it is over few clients, in a round that is beyond the limit, and where a mean hides some clients; see
`evaluation.limits`. A metric with `worst_client` is limited for each client instead. A limit may also be one on a
difference, see `evaluation.relative_limits`. What was not measured does not pass.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from attacks.base import Attack
from evaluation.changes import Changes
from evaluation.failures import reasons
from evaluation.learner_match import simulates
from evaluation.limit_names import asks, parts_of
from evaluation.limits import FEWEST, Measured, measured
from evaluation.relative_limits import BEYOND_BASELINE, CHANGE, RELATIVE, Differences, beyond_baseline, changed
from evaluation.risk import worst_clients
from evaluation.runner import Evaluation
from evaluation.scores import differing, number, records, rows_of
from protocol.metric_table import METRICS, metric

FAILED = 3
"""Exit status if an attack exceeds a limit."""
UNCHECKED = 4
"""Exit status if no limit is exceeded, but no attack measured one."""
UNDECIDED = 5
"""Exit status if no limit is exceeded and all were measured, but too few clients decide one."""
Outcome = Literal["ok", "failed", "unchecked", "undecided"]
_STATUS: Mapping[str, int] = {"failed": FAILED, "unchecked": UNCHECKED, "undecided": UNDECIDED}
"""Exit status by outcome, the first to be found decides."""


@dataclass(frozen=True)
class Verdict:
    """Outcome of one limit.

    Attributes:
        metric: limited metric, after its question and a slash if the limit names one.
        limit: largest value allowed; smallest if the metric is lower for more leakage.
        attack: attack that decides, None if none was scored.
        value: mean of that attack over clients, or value of its worst client; None if there is none.
        low: lower end of the value's interval, None if it has none.
        high: upper end.
        n: number of clients.
        verdict: ``ok``, ``failed``, ``undecided`` (the interval contains the limit) or ``unchecked`` (no value).
        message: line to print.
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


Gate = Callable[[pd.DataFrame, Evaluation], list[Verdict]]
"""Function from results (see `evaluation.summary.summarise`) and their evaluation to verdicts."""


class LimitError(AssertionError):
    """Limits that do not hold; the message has the gate's sentences, and `verdicts` has all verdicts."""

    def __init__(self, verdicts: Sequence[Verdict]) -> None:
        super().__init__("\n".join(one.message for one in verdicts))
        self.verdicts = verdicts


def gate(
    limits: Mapping[str, float],
    attacks: Sequence[Attack],
    changes_of: Callable[[Evaluation], Changes] | None = None,
) -> Gate:
    """Function that checks limits, by metric, on the results of attacks.

    Args:
        limits: see `check_limits`.
        attacks: attacks of the audit.
        changes_of: what changed in an evaluation from a reference, for limits on ``change``; None without a reference.
    """

    def check(results: pd.DataFrame, evaluation: Evaluation) -> list[Verdict]:
        found = [_verdict(name, limit, results, evaluation, attacks, changes_of) for name, limit in limits.items()]
        return [_with_learner(verdict, results, evaluation, attacks) for verdict in found]

    return check


def gate_status(outcomes: Sequence[str]) -> int:
    """Exit status of the verdicts' outcomes: `FAILED` before `UNCHECKED` before `UNDECIDED` before 0."""
    return next((status for outcome, status in _STATUS.items() if outcome in outcomes), 0)


def _verdict(
    name: str,
    limit: float,
    results: pd.DataFrame,
    evaluation: Evaluation,
    attacks: Sequence[Attack],
    changes_of: Callable[[Evaluation], Changes] | None,
) -> Verdict:
    rows, (question, metric_name) = _of_attacks(name, results), parts_of(name)
    sign = -1 if metric(metric_name).lower_is_better else 1
    keys = differing(results) if len(results) else set()
    asked = [one for one in attacks if not one.baseline and asks(question)(one.family, one.estimates.inferred)]
    if metric_name == CHANGE and changes_of is not None:
        differences = changed(changes_of(evaluation), asks(question), limit)
    elif metric_name == BEYOND_BASELINE:
        differences = beyond_baseline(rows, results, evaluation.scores, keys, limit)
    else:
        options: dict[str, Any] = {"limit": sign * limit, "keys": keys, "attacks": len(rows)}
        differences = Differences([one for row in rows for one in measured(row, evaluation.scores, **options)])
    found = [one for one in differences.measured if not math.isnan(one.value)]
    if not found:
        why_not = differences.left_out if metric_name in RELATIVE else ""
        why_not = why_not or _why_not(name, bool(rows), asked, evaluation.missing)
        message = f"gate could not be checked: {why_not}"
        return Verdict(name, limit, None, None, None, None, 0, "unchecked", message)
    outcomes = [_outcome(one, sign * limit) for one in found]
    outcome: Outcome = next(kind for kind in ("failed", "undecided", "ok") if kind in outcomes)
    decisive = [one for one, own in zip(found, outcomes, strict=True) if own == outcome]
    one = max(decisive, key=lambda one: one.leaky if outcome == "undecided" else one.value)
    ends = [sign * end for end in (one.safe, one.leaky)]
    low, high = (None, None) if not all(map(math.isfinite, ends)) or ends[0] == ends[1] else sorted(ends)
    if not metric(metric_name).worst_client and ends[0] == ends[1]:
        low, high = ends
    message = _message(name, limit, one, outcome, (low, high), len(found if metric_name in RELATIVE else rows))
    if outcome == "ok" and metric_name in RELATIVE:
        message += f"; {differences.left_out}" if differences.left_out else ""
    elif outcome == "ok":
        message += _not_covered(metric_name, rows, asked, evaluation)
    return Verdict(name, limit, one.label, sign * one.value, low, high, one.n, outcome, message)


def _not_covered(name: str, rows: Sequence[Mapping[str, Any]], asked: Sequence[Attack], evaluation: Evaluation) -> str:
    """What a limit that holds says nothing about: attacks that did not run; and the clients that are exposed most."""
    clients = [worst_clients(rows_of(evaluation.scores, row)) for row in rows] if len(evaluation.scores) else []
    tenths = [float(own.mean()) for own in clients if len(own)]
    worst = (min if metric(name).lower_is_better else max)(tenths, default=math.nan)
    added = f"; worst tenth of the clients {number(worst)}" if tenths and not metric(name).worst_client else ""
    ran = {row["attack"] for row in rows}
    measuring = [one.name for one in asked if name in one.estimates.metric_names()]
    absent = [attack for attack in measuring if attack not in ran or attack in evaluation.tracebacks]
    if not absent:
        return added
    others = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
    which = "attack" if len(absent) == 1 else "attacks"
    return f"{added}; {len(absent)} {which} with this metric did not run: {', '.join(absent[:3])}{others}"


def _with_learner(
    verdict: Verdict, results: pd.DataFrame, evaluation: Evaluation, attacks: Sequence[Attack]
) -> Verdict:
    """Unchecked instead of ok or undecided, if attacks that measured the metric simulate a learner that is wrong."""
    measured = {row["attack"] for row in _of_attacks(verdict.metric, results)}
    measuring = [attack for attack in attacks if attack.name in measured]
    if evaluation.mismatch is None or verdict.verdict == "failed" or not any(map(simulates, measuring)):
        return verdict
    message = f"gate could not be checked: {verdict.metric}, because {evaluation.mismatch}"
    return dataclasses.replace(verdict, verdict="unchecked", message=message)


def _of_attacks(name: str, results: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of the attacks for a metric, or those that judge attacks, without baselines and references."""
    if results.empty:
        return []
    question, metric_name = parts_of(name)
    judged = [one.name for one in METRICS.values() if one.judged]
    names = judged if metric_name in RELATIVE else [metric_name]
    rows = records(results[results["metric"].isin(names) & results["role"].isin(("ours", "published"))])
    return [row for row in rows if asks(question)(str(row["family"]), str(row["tells"]))]


def _outcome(one: Measured, limit: float) -> Outcome:
    if not one.enough:
        return "undecided"
    if one.safe > limit:
        return "failed"
    return "ok" if one.leaky <= limit and one.doubt is None else "undecided"


def _message(
    name: str, limit: float, one: Measured, outcome: Outcome, ends: tuple[float | None, float | None], attacks: int
) -> str:
    entry = metric(parts_of(name)[1])
    lower, sign = entry.lower_is_better, -1 if entry.lower_is_better else 1
    value, beyond, within = sign * one.value, *(("below", "above") if lower else ("above", "below"))
    joint = f" for {attacks} attacks" if attacks > 1 and not entry.worst_client else ""
    known = (
        "" if None in ends else f"95% interval{joint} {' to '.join(number(end) for end in ends if end is not None)}, "
    )
    people = f"the worst of {one.n} clients" if entry.worst_client else f"n = {one.n}"
    about = f"{one.about}; " if one.about else ""
    found, known = f"{one.label} {name} {number(value)}", f"({about}{known}{people})"
    if outcome == "failed":
        return f"GATE FAILED: {found} is {beyond} the limit {limit:g} {known}"
    if outcome == "undecided":
        needed = _needed(one, sign * limit, entry.worst_client)
        return f"GATE UNDECIDED: {found} may be {beyond} the limit {limit:g} {known}: {needed}"
    place, extreme = "at" if value == limit else within, "lowest" if lower else "highest"
    return f"gate ok: {extreme} {name} {number(value)} ({one.label}) is {place} the limit {limit:g} {known}"


def _needed(one: Measured, limit: float, worst: bool) -> str:
    """What would decide: the number of clients at which the interval's end reaches the limit, if the mean stays."""
    if not one.enough:
        return f"at least {FEWEST - one.n} more clients are needed"
    if one.leaky == math.inf:
        return "a client has no value"
    if worst:
        return "its interval contains the limit"
    if one.doubt is not None:
        return one.doubt
    gap, end = limit - one.value, one.safe if one.value > limit else one.leaky
    ratio = ((end - one.value) / gap) ** 2 if gap else math.inf
    if not math.isfinite(ratio) or ratio > 1e4:
        return "the mean is too near to the limit for more clients to decide it"
    return f"about {math.ceil(round(one.n * (ratio - 1), 6))} more clients are needed, if the mean stays"


def _why_not(name: str, scored: bool, attacks: Sequence[Attack], missing: Mapping[str, str]) -> str:
    measuring = [one.name for one in attacks if parts_of(name)[1] in one.estimates.metric_names()]
    if scored:
        return f"{name} is not defined for any of these clients"
    if not measuring:
        return f"no attack of this audit measures {name}"
    if because := reasons({attack: missing[attack] for attack in measuring if attack in missing}):
        return f"no attack measured {name}, because {' '.join(because)}".rstrip(".")
    others = f" and {len(measuring) - 3} others" if len(measuring) > 3 else ""
    return f"no attack measured {name}: {', '.join(measuring[:3])}{others} do not fit this recording"
