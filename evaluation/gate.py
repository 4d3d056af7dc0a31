"""Gate of a CI job: limits on what attacks may infer from a recording.

A limit applies to every attack; baselines are exempt. The 95% interval of an attack's mean over clients decides: the
limit holds if the whole interval is on the safe side, and is exceeded if the whole interval is beyond. An interval that
contains the limit leaves it undecided, as does a mean over fewer than `FEWEST` clients. A metric with `worst_client` is
limited for each client instead. What was not measured does not pass.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from attacks.base import Attack
from evaluation.evaluate import reasons
from evaluation.learner_match import simulates
from evaluation.runner import Evaluation
from evaluation.scores import SETTING, describe, differing, number, records, setting_of
from protocol.errors import InputError
from protocol.metrics import METRICS, metric

FAILED = 3
"""Exit status if an attack exceeds a limit."""
UNCHECKED = 4
"""Exit status if no limit is exceeded, but no attack measured one."""
UNDECIDED = 5
"""Exit status if no limit is exceeded and all were measured, but too few clients decide one."""
FEWEST = 5
"""Smallest number of clients whose interval decides; that of a percentile bootstrap is too short for fewer."""
Outcome = Literal["ok", "failed", "unchecked", "undecided"]
_STATUS: Mapping[str, int] = {"failed": FAILED, "unchecked": UNCHECKED, "undecided": UNDECIDED}
"""Exit status by outcome, the first to be found decides."""


@dataclass(frozen=True)
class Verdict:
    """Outcome of one limit.

    Attributes:
        metric: limited metric.
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


@dataclass(frozen=True)
class _Measured:
    """Value of one attack in one setting, in units in which a limit is exceeded from below: ``sign`` times the metric.

    Attributes:
        label: attack, with its setting if there are several.
        value: mean over clients, or value of the worst client.
        safe: end of the interval that is further from the leak.
        leaky: end of the interval that is nearer to it; infinite if a client that could be the worst has no value.
        n: number of clients.
        enough: whether there are enough clients to decide.
    """

    label: str
    value: float
    safe: float
    leaky: float
    n: int
    enough: bool


def check_limits(limits: Mapping[str, float]) -> None:
    """Checks the metrics of limits; call it after loading the attacks, whose estimates may add metrics.

    Raises:
        InputError: a metric is unknown or does not measure leakage.
    """
    for name in limits:
        if not metric(name).leak:
            gated = [entry.name for entry in METRICS.values() if entry.leak]
            why = "which measures no leakage" if name in METRICS else "which is unknown"
            raise InputError(
                expected=f"a metric of leakage, one of {', '.join(gated)}",
                found=f"{name!r}, {why}",
                way_out="Correct the name, or add the attack that measures it: --attacks PACKAGE.CLASS.",
            )


def gate(limits: Mapping[str, float], attacks: Sequence[Attack]) -> Gate:
    """Function that checks limits, by metric, on the results of attacks."""

    def check(results: pd.DataFrame, evaluation: Evaluation) -> list[Verdict]:
        found = [_verdict(name, limit, results, evaluation, attacks) for name, limit in limits.items()]
        return [_with_learner(verdict, results, evaluation, attacks) for verdict in found]

    return check


def gate_status(outcomes: Sequence[str]) -> int:
    """Exit status of the verdicts' outcomes: `FAILED` before `UNCHECKED` before `UNDECIDED` before 0."""
    return next((status for outcome, status in _STATUS.items() if outcome in outcomes), 0)


def _verdict(
    name: str, limit: float, results: pd.DataFrame, evaluation: Evaluation, attacks: Sequence[Attack]
) -> Verdict:
    rows = _of_attacks(name, results)
    sign = -1 if metric(name).lower_is_better else 1
    worst, keys = metric(name).worst_client, differing(results) if len(results) else set()
    measured = [_worst_client(row, evaluation.scores, sign, keys) if worst else _mean(row, sign, keys) for row in rows]
    measured = [one for one in measured if not math.isnan(one.value)]
    if not measured:
        message = f"gate could not be checked: {_why_not(name, bool(rows), attacks, evaluation.missing)}"
        return Verdict(name, limit, None, None, None, None, 0, "unchecked", message)
    outcomes = [_outcome(one, sign * limit) for one in measured]
    outcome: Outcome = next(kind for kind in ("failed", "undecided", "ok") if kind in outcomes)
    decisive = [one for one, own in zip(measured, outcomes, strict=True) if own == outcome]
    one = max(decisive, key=lambda one: one.leaky if outcome == "undecided" else one.value)
    ends = [sign * end for end in (one.safe, one.leaky)]
    low, high = (None, None) if worst and (ends[0] == ends[1] or one.leaky == math.inf) else sorted(ends)
    message = _message(name, limit, one, outcome, (low, high))
    return Verdict(name, limit, one.label, sign * one.value, low, high, one.n, outcome, message)


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
    """Rows of the attacks for a metric, without baselines and references."""
    if results.empty:
        return []
    return records(results[(results["metric"] == name) & results["role"].isin(("ours", "published"))])


def _label(row: Mapping[str, Any], keys: set[str]) -> str:
    setting = describe(setting_of(row), keys)
    return f"{row['attack']} in {setting}" if setting else str(row["attack"])


def _mean(row: Mapping[str, Any], sign: int, keys: set[str]) -> _Measured:
    safe, leaky = sorted((sign * row["low"], sign * row["high"]))
    return _Measured(_label(row, keys), sign * row["mean"], safe, leaky, int(row["n"]), row["n"] >= FEWEST)


def _worst_client(row: Mapping[str, Any], scores: pd.DataFrame, sign: int, keys: set[str]) -> _Measured:
    """Value of the worst client, with the interval of metrics ``NAME-low`` and ``NAME-high`` if there are such."""
    own = scores[scores["attack"] == row["attack"]]
    for key, value in setting_of(row).items():
        own = own[own[SETTING + key] == value]

    def by_client(name: str) -> "pd.Series[float]":
        values: pd.Series[float] = sign * own[own["metric"] == name].set_index("person")["value"]
        return values.groupby(level=0).max()

    values = by_client(row["metric"])
    safe, leaky = (by_client(f"{row['metric']}-{end}") for end in ("low", "high")[::sign])
    ends = [end.reindex(values.index).fillna(values).max() for end in (safe, leaky)]
    leakiest = math.inf if values.isna().any() else float(ends[1])
    return _Measured(_label(row, keys), float(values.max()), float(ends[0]), leakiest, len(values), True)


def _outcome(one: _Measured, limit: float) -> Outcome:
    if not one.enough:
        return "undecided"
    return "ok" if one.leaky <= limit else "failed" if one.safe > limit else "undecided"


def _message(name: str, limit: float, one: _Measured, outcome: Outcome, ends: tuple[float | None, float | None]) -> str:
    entry = metric(name)
    lower, sign = entry.lower_is_better, -1 if entry.lower_is_better else 1
    value, beyond, within = sign * one.value, *(("below", "above") if lower else ("above", "below"))
    interval = "" if ends[0] is None or ends[1] is None else f"95% interval {number(ends[0])} to {number(ends[1])}, "
    people = f"the worst of {one.n} clients" if entry.worst_client else f"n = {one.n}"
    measured, known = f"{one.label} {name} {number(value)}", f"({interval}{people})"
    if outcome == "failed":
        return f"GATE FAILED: {measured} is {beyond} the limit {limit:g} {known}"
    if outcome == "undecided":
        needed = _needed(one, sign * limit, entry.worst_client)
        return f"GATE UNDECIDED: {measured} may be {beyond} the limit {limit:g} {known}: {needed}"
    place = "at" if value == limit else within
    extreme = "lowest" if lower else "highest"
    return f"gate ok: {extreme} {name} {number(value)} ({one.label}) is {place} the limit {limit:g} {known}"


def _needed(one: _Measured, limit: float, worst: bool) -> str:
    """What would decide: the number of clients at which the interval's end reaches the limit, if the mean stays."""
    if not one.enough:
        return f"at least {FEWEST - one.n} more clients are needed"
    if one.leaky == math.inf:
        return "a client has no value"
    if worst:
        return "its interval contains the limit"
    gap, end = limit - one.value, one.safe if one.value > limit else one.leaky
    ratio = ((end - one.value) / gap) ** 2 if gap else math.inf
    if not math.isfinite(ratio) or ratio > 1e4:
        return "the mean is too near to the limit for more clients to decide it"
    return f"about {math.ceil(round(one.n * (ratio - 1), 6))} more clients are needed, if the mean stays"


def _why_not(name: str, scored: bool, attacks: Sequence[Attack], missing: Mapping[str, str]) -> str:
    measuring = [a.name for a in attacks if name in a.estimates.metric_names() and not a.baseline]
    if scored:
        return f"{name} is not defined for any of these clients"
    if not measuring:
        return f"no attack of this audit measures {name}"
    because = reasons({attack: missing[attack] for attack in measuring if attack in missing})
    others = f" and {len(measuring) - 3} others" if len(measuring) > 3 else ""
    why = (
        f", because {' '.join(because)}"
        if because
        else f": {', '.join(measuring[:3])}{others} do not fit this recording"
    )
    return f"no attack measured {name}{why}".rstrip(".")
