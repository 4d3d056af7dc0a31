"""Gate of a CI job: limits on what attacks may infer from a recording.

A limit applies to the mean over clients of every attack; baselines are exempt. A mean over fewer than `FEWEST` clients
exceeds a limit only if its whole interval does, and otherwise leaves the limit unchecked. An unchecked limit does not
pass.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from attacks.base import Attack
from evaluation.evaluate import reasons
from evaluation.scores import number, records
from protocol.errors import InputError
from protocol.metrics import METRICS, metric

FAILED = 3
"""Exit status if an attack exceeds a limit."""
UNCHECKED = 4
"""Exit status if no limit is exceeded, but one could not be checked."""
FEWEST = 5
"""Smallest number of clients whose mean alone decides."""


@dataclass(frozen=True)
class Verdict:
    """Outcome of one limit.

    Attributes:
        metric: limited metric.
        limit: largest mean allowed; smallest if the metric is lower for more leakage.
        verdict: ``ok``, ``failed`` or ``unchecked``.
        attack: attack that is nearest to or furthest beyond the limit, None if none was scored.
        mean: mean of that attack, None if there is none.
        ci95: interval of the mean.
        n: number of clients.
        message: line to print.
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
"""Function from results and the reasons why attacks could not run to verdicts."""


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

    def check(results: pd.DataFrame, missing: Mapping[str, str]) -> list[Verdict]:
        return [_verdict(name, limit, results, attacks, missing) for name, limit in limits.items()]

    return check


def gate_status(verdicts: Sequence[Verdict]) -> int:
    """Exit status: `FAILED` before `UNCHECKED` before 0."""
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
    """Rows of the attacks for a metric."""
    if results.empty:
        return []
    rows = records(results[(results["metric"] == name) & results["role"].isin(("ours", "published"))])
    return [row for row in rows if not finite or math.isfinite(row["mean"])]


def _of(verdict: Literal["ok", "failed", "unchecked"], row: Mapping[str, Any], limit: float) -> Verdict:
    """Verdict with the attack that decides it."""
    name, lower = row["metric"], metric(row["metric"]).lower_is_better
    low, high, mean, n = row["low"], row["high"], row["mean"], int(row["n"])
    measured = f"{row['attack']} {name} {number(mean)} [{number(low)}, {number(high)}], n = {n}"
    beyond = "below" if lower else "above"
    message = {
        "failed": f"GATE FAILED: {measured}: {beyond} the limit {limit:g}",
        "unchecked": f"gate could not be checked: {measured}: fewer than {FEWEST} clients for the limit {limit:g}",
        "ok": f"gate ok: {'lowest' if lower else 'highest'} {name} {number(mean)} ({row['attack']}) "
        f"{'>=' if lower else '<='} {limit:g}",
    }[verdict]
    return Verdict(name, limit, verdict, row["attack"], mean, (low, high), n, message)


def _exceeds(row: Mapping[str, Any], limit: float) -> bool:
    """Whether a mean, or with few clients the whole interval, is beyond the limit."""
    ends = (row["mean"],) if row["n"] >= FEWEST else (row["low"], row["high"])
    lower = metric(row["metric"]).lower_is_better
    return all(end < limit if lower else end > limit for end in ends)


def _leak(row: Mapping[str, Any]) -> float:
    return float(-row["mean"] if metric(row["metric"]).lower_is_better else row["mean"])


def _why_not(name: str, results: pd.DataFrame, attacks: Sequence[Attack], missing: Mapping[str, str]) -> str:
    measuring = [a.name for a in attacks if name in a.estimates.metric_names() and not a.baseline]
    if not measuring:
        return f"no attack of this audit measures {name}"
    if _scored(name, results, finite=False):
        return f"{name} is not defined for any of these clients"
    because = reasons({attack: missing[attack] for attack in measuring if attack in missing})
    why = f", because {' '.join(because)}" if because else ": no client was attacked"
    return f"no attack measured {name}{why}".rstrip(".")
