"""The gate of a CI job: limits on what attacks may infer from a recording, and whether they hold.

A limit holds for every attack, by its mean over people, but for baselines (`reports.judging.GUESSES`), which leak
nothing. A mean over fewer than `FEWEST` people decides nothing: then a limit is exceeded only where the whole interval
lies beyond it, and otherwise could not be checked. What could not be checked is no pass.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from attacks.base import Attack
from errors import InputError
from reports.audit import AUDITED
from reports.evaluation import told_missing
from reports.judging import METRICS, is_attack, lower_is_better
from reports.results import Result
from reports.scoring import MEASURES
from reports.settings import number

FAILED = 3
"""Exit status where an attack infers more than a limit allows."""
UNCHECKED = 4
"""Exit status where no limit was exceeded, but one could not be checked."""
FEWEST = 5
"""People from whom on a mean counts by itself."""
GATED = tuple(metric for metric in AUDITED if METRICS[metric].leak)
"""Metrics that a limit may be set on."""


@dataclass(frozen=True)
class Verdict:
    """What one limit came to.

    Attributes:
        metric: which is limited.
        limit: the highest mean allowed, the lowest where a lower number is more leaked.
        verdict: ``ok``, ``failed`` or ``unchecked``.
        attack: the attack nearest to or furthest beyond the limit, None where none was scored.
        mean: its mean, None where there is none.
        ci95: the interval of the mean.
        n: number of people.
        message: a line.
    """

    metric: str
    limit: float
    verdict: Literal["ok", "failed", "unchecked"]
    attack: str | None
    mean: float | None
    ci95: tuple[float, float] | None
    n: int
    message: str


Gate = Callable[[Sequence[Result], Mapping[str, str]], list[Verdict]]
"""From results, and by attack that could not run what it lacks, to verdicts."""


def read_gate(text: str) -> dict[str, float]:
    """Limits from the command line: ``auc=0.6``, ``auc=0.6,f1=0.5`` or JSON.

    Raises:
        InputError: it is none of them, or a metric or a limit is impossible.
    """
    try:
        if text.lstrip().startswith("{"):
            limits = {str(name): float(limit) for name, limit in json.loads(text).items()}
        else:
            pairs = [part.partition("=")[::2] for part in text.split(",")]
            limits = {name.strip(): float(limit) for name, limit in pairs}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InputError(
            expected="--gate METRIC=NUMBER", found=text, way_out="For example --gate auc=0.6 or --gate l1=0.3."
        ) from None
    check_limits(limits)
    return limits


def check_limits(limits: Mapping[str, float]) -> None:
    """Refuses what cannot be a gate.

    Raises:
        InputError: a metric is unknown or measures no leak, or a limit is no finite number.
    """
    for metric, limit in limits.items():
        if metric not in GATED:
            known = f"a metric of a leak to gate on, one of {', '.join(GATED)}"
            why = "which measures no leak" if metric in METRICS else "which no audit measures"
            raise InputError(expected=known, found=f"{metric!r}, {why}", way_out="Fix the name of the metric.")
        if not math.isfinite(limit):
            raise InputError(expected=f"a finite limit on {metric}", found=str(limit), way_out="Give a number.")


def gate(limits: Mapping[str, float], attacks: Sequence[Attack]) -> Gate:
    """What checks limits on the results of attacks.

    Args:
        limits: by metric.
        attacks: that were to run.
    """

    def check(results: Sequence[Result], missing: Mapping[str, str]) -> list[Verdict]:
        return [_verdict(metric, limit, results, attacks, missing) for metric, limit in limits.items()]

    return check


def gate_status(verdicts: Sequence[Verdict]) -> int:
    """The exit status: `FAILED` before `UNCHECKED` before 0."""
    found = {verdict.verdict for verdict in verdicts}
    return FAILED if "failed" in found else UNCHECKED if "unchecked" in found else 0


def _verdict(
    metric: str, limit: float, results: Sequence[Result], attacks: Sequence[Attack], missing: Mapping[str, str]
) -> Verdict:
    scored = [r for r in results if r.metric == metric and is_attack(r.attack) and math.isfinite(r.mean)]
    if not scored:
        message = f"gate could not be checked: {_why_not(metric, results, attacks, missing)}"
        return Verdict(metric, limit, "unchecked", None, None, None, 0, message)
    failed = [r for r in scored if _exceeds(r, limit)]
    unsure = [r for r in scored if r.n < FEWEST and r not in failed]
    if failed:
        return _of("failed", max(failed, key=_leak), limit)
    if unsure:
        return _of("unchecked", max(unsure, key=_leak), limit)
    return _of("ok", max(scored, key=_leak), limit)


def _of(verdict: Literal["ok", "failed", "unchecked"], result: Result, limit: float) -> Verdict:
    """A verdict by the attack that decided it."""
    lower = lower_is_better(result.metric)
    low, high = result.ci95
    measured = f"{result.attack} {result.metric} {number(result.mean)} [{number(low)}, {number(high)}], n = {result.n}"
    beyond = "nearer than" if lower else "above"
    message = {
        "failed": f"GATE FAILED: {measured}: {beyond} the limit {limit:g}",
        "unchecked": f"gate could not be checked: {measured}: fewer than {FEWEST} people are too few for the limit "
        f"{limit:g}",
        "ok": f"gate ok: {'lowest' if lower else 'highest'} {result.metric} {number(result.mean)} ({result.attack}) "
        f"{'>=' if lower else '<='} {limit:g}",
    }[verdict]
    return Verdict(result.metric, limit, verdict, result.attack, result.mean, result.ci95, result.n, message)


def _exceeds(result: Result, limit: float) -> bool:
    """Whether more is inferred than allowed: by the mean, of few people by the whole interval."""
    ends = (result.mean,) if result.n >= FEWEST else result.ci95
    if lower_is_better(result.metric):
        return all(end < limit for end in ends)
    return all(end > limit for end in ends)


def _leak(result: Result) -> float:
    return -result.mean if lower_is_better(result.metric) else result.mean


def _why_not(metric: str, results: Sequence[Result], attacks: Sequence[Attack], missing: Mapping[str, str]) -> str:
    measuring = [attack.name for attack in attacks if metric in MEASURES.get(attack.estimates, ())]
    measuring = [name for name in measuring if is_attack(name)]
    if not measuring:
        return f"no attack of this audit measures {metric}"
    if any(r.metric == metric and is_attack(r.attack) for r in results):
        return f"no attack has a value of {metric}: it is not defined for any of these clients"
    reasons = told_missing({name: missing[name] for name in measuring if name in missing})
    because = f", because {' '.join(reasons)}" if reasons else ": no client was attacked"
    return f"no attack measured {metric}{because}".rstrip(".")
