"""The gate of a CI job: limits on what attacks may infer from a recording, and whether they hold.

A limit holds for the mean over people of every attack; baselines leak nothing and are exempt. A mean over fewer than
`FEWEST` people decides nothing: then a limit is exceeded only where the whole interval lies beyond it, and otherwise
could not be checked. What could not be checked is no pass.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from attacks.base import Attack
from evaluation.evaluate import reasons
from evaluation.labels import number
from evaluation.scores import records
from protocol.errors import InputError
from protocol.metrics import METRICS, metric

FAILED = 3
"""Exit status where an attack infers more than a limit allows."""
UNCHECKED = 4
"""Exit status where no limit was exceeded, but one could not be checked."""
FEWEST = 5
"""People from whom on a mean counts by itself."""


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


Gate = Callable[[pd.DataFrame, Mapping[str, str]], list[Verdict]]
"""From results, and by attack that could not run what it lacks, to verdicts."""


def read_gate(text: str) -> dict[str, float]:
    """Limits from the command line: ``auc=0.6``, ``auc=0.6,f1=0.5`` or JSON.

    Raises:
        InputError: it is none of them, or a limit is no finite number.
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
    for name, limit in limits.items():
        if not math.isfinite(limit):
            raise InputError(expected=f"a finite limit on {name}", found=str(limit), way_out="Give a number.")
    return limits


def check_limits(limits: Mapping[str, float]) -> None:
    """Refuses what cannot be a gate; call it once the attacks are loaded, whose estimates bring metrics of their own.

    Raises:
        InputError: a metric is unknown or measures no leak.
    """
    for name in limits:
        if not metric(name).leak:
            gated = [entry.name for entry in METRICS.values() if entry.leak]
            why = "which measures no leak" if name in METRICS else "which no audit measures"
            raise InputError(
                expected=f"a metric of a leak to gate on, one of {', '.join(gated)}",
                found=f"{name!r}, {why}",
                way_out="Fix the name of the metric, or add the attack that measures it: --attacks PACKAGE.CLASS.",
            )


def gate(limits: Mapping[str, float], attacks: Sequence[Attack]) -> Gate:
    """What checks limits on the results of attacks.

    Args:
        limits: by metric.
        attacks: that were to run.
    """

    def check(results: pd.DataFrame, missing: Mapping[str, str]) -> list[Verdict]:
        return [_verdict(name, limit, results, attacks, missing) for name, limit in limits.items()]

    return check


def gate_status(verdicts: Sequence[Verdict]) -> int:
    """The exit status: `FAILED` before `UNCHECKED` before 0."""
    found = {verdict.verdict for verdict in verdicts}
    return FAILED if "failed" in found else UNCHECKED if "unchecked" in found else 0


def _verdict(
    name: str, limit: float, results: pd.DataFrame, attacks: Sequence[Attack], missing: Mapping[str, str]
) -> Verdict:
    scored = _scored(name, results)
    if not scored:
        message = f"gate could not be checked: {_why_not(name, results, attacks, missing)}"
        return Verdict(name, limit, "unchecked", None, None, None, 0, message)
    failed = [row for row in scored if _exceeds(row, limit)]
    unsure = [row for row in scored if row["n"] < FEWEST and row not in failed]
    if failed:
        return _of("failed", max(failed, key=_leak), limit)
    if unsure:
        return _of("unchecked", max(unsure, key=_leak), limit)
    return _of("ok", max(scored, key=_leak), limit)


def _scored(name: str, results: pd.DataFrame, *, finite: bool = True) -> list[dict[str, Any]]:
    """The attacks' rows of a metric."""
    if results.empty:
        return []
    rows = records(results[(results["metric"] == name) & results["role"].isin(("ours", "published"))])
    return [row for row in rows if not finite or math.isfinite(row["mean"])]


def _of(verdict: Literal["ok", "failed", "unchecked"], row: Mapping[str, Any], limit: float) -> Verdict:
    """A verdict by the attack that decided it."""
    name, lower = row["metric"], metric(row["metric"]).lower_is_better
    low, high, mean, n = row["low"], row["high"], row["mean"], int(row["n"])
    measured = f"{row['attack']} {name} {number(mean)} [{number(low)}, {number(high)}], n = {n}"
    beyond = "nearer than" if lower else "above"
    message = {
        "failed": f"GATE FAILED: {measured}: {beyond} the limit {limit:g}",
        "unchecked": f"gate could not be checked: {measured}: fewer than {FEWEST} people are too few for the limit "
        f"{limit:g}",
        "ok": f"gate ok: {'lowest' if lower else 'highest'} {name} {number(mean)} ({row['attack']}) "
        f"{'>=' if lower else '<='} {limit:g}",
    }[verdict]
    return Verdict(name, limit, verdict, row["attack"], mean, (low, high), n, message)


def _exceeds(row: Mapping[str, Any], limit: float) -> bool:
    """Whether more is inferred than allowed: by the mean, of few people by the whole interval."""
    ends = (row["mean"],) if row["n"] >= FEWEST else (row["low"], row["high"])
    if metric(row["metric"]).lower_is_better:
        return all(end < limit for end in ends)
    return all(end > limit for end in ends)


def _leak(row: Mapping[str, Any]) -> float:
    return float(-row["mean"] if metric(row["metric"]).lower_is_better else row["mean"])


def _why_not(name: str, results: pd.DataFrame, attacks: Sequence[Attack], missing: Mapping[str, str]) -> str:
    measuring = [a.name for a in attacks if name in a.estimates.metric_names() and not a.baseline]
    if not measuring:
        return f"no attack of this audit measures {name}"
    if _scored(name, results, finite=False):
        return f"no attack has a value of {name}: it is not defined for any of these clients"
    because = reasons({attack: missing[attack] for attack in measuring if attack in missing})
    why = f", because {' '.join(because)}" if because else ": no client was attacked"
    return f"no attack measured {name}{why}".rstrip(".")
