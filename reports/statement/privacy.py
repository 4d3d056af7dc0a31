"""Differential privacy in a statement: declared, as sent, lower bounds, and the pyramid of NIST SP 800-226."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from evaluation.runner import Evaluation
from evaluation.scores import records
from reports.statement.measured import DECLARED_PRIVACY
from reports.statement.numbers import Cell, Interval, Number, Strict, of_row, plain, shown
from reports.statement.system_file import Promise, System

BOUNDS = ("epsilon-cp", "epsilon-one-run", "epsilon-one-run-fdp", "epsilon-gdp")
"""Metrics of lower bounds from canaries."""


class Bound(Strict):
    """Lower bound of epsilon from canaries."""

    metric: str
    """epsilon-cp, epsilon-one-run, epsilon-one-run-fdp or epsilon-gdp, named for what it assumes"""
    value: Number
    """the bound, at 95% confidence"""
    n: int
    """number of canaries"""
    refutes: bool | None
    """whether it exceeds the declared epsilon; null if none is declared, or for another unit"""


class Sent(Strict):
    """Epsilon of the updates as they were sent."""

    mean: Interval
    """mean over clients"""
    worst: Number
    """largest of a client"""
    n: int
    """number of clients"""


class Level(Strict):
    """Line of the pyramid of NIST SP 800-226."""

    level: Literal["top", "middle", "bottom"]
    """level of the pyramid"""
    item: str
    """what a claim of differential privacy depends on"""
    status: Literal["checked", "declared", "not looked at"]
    """whether this audit checked it, the controller declares it, or neither"""
    note: str
    """what was found or declared"""


class Privacy(Strict):
    """Differential privacy: declared, as sent, and lower bounds."""

    declared: Promise | None
    """declaration of the controller"""
    recorded: Sent | None
    """epsilon by the clip and the noise that the recording declares, null if not looked at"""
    as_sent: Sent | None
    """epsilon of the noise that the release check found, null if not looked at"""
    lower_bounds: list[Bound]
    """lower bounds from canaries, empty if not looked at"""
    findings: list[dict[str, Cell]]
    """rows of the release check"""
    sentence: str
    """the three in a sentence"""
    pyramid: list[Level]
    """a line for each item of the pyramid"""


def privacy(
    results: pd.DataFrame, evaluation: Evaluation, system: System, releases: Sequence[Mapping[str, Any]]
) -> Privacy:
    """Differential privacy as declared and as measured.

    Args:
        results: table of results.
        evaluation: scores behind them, and tables of the checks.
        system: declaration.
        releases: what the recording says that clients do before they send.

    References:
        Near, Darais, Lefkovitz and Howarth, "Guidelines for Evaluating Differential Privacy Guarantees", NIST SP
        800-226, 2025.
    """
    own = results[(results["family"] == DECLARED_PRIVACY) & results["mean"].notna()]
    recorded, sent = (_sent(own, evaluation, name) for name in ("epsilon-declared", "epsilon"))
    promise = system.epsilon
    comparable = promise is not None and promise.unit == "client"
    bounds = [
        Bound(
            **{"metric": row["metric"], "value": plain(row["mean"]), "n": int(row["n"])},
            refutes=bool(row["mean"] > promise.value) if promise is not None and comparable else None,
        )
        for row in records(own[own["metric"].isin(BOUNDS)])
    ]
    findings = [dict(row) for rows in _details(evaluation).values() for row in rows]
    return Privacy(
        declared=promise,
        recorded=recorded,
        as_sent=sent,
        lower_bounds=bounds,
        findings=findings,
        sentence=_sentence(promise, recorded, sent, bounds, releases),
        pyramid=_pyramid(system, sent, bounds, releases),
    )


def _details(evaluation: Evaluation) -> dict[str, list[dict[str, Cell]]]:
    """Rows of the checks' own tables, with plain numbers."""
    checks = {label for label, line in evaluation.lines.items() if line.family == DECLARED_PRIVACY}
    tables = getattr(evaluation, "details", {})
    return {label: [_plain(row) for row in records(table)] for label, table in tables.items() if label in checks}


def _plain(row: Mapping[str, Any]) -> dict[str, Cell]:
    return {name: plain(value) if isinstance(value, float) else value for name, value in row.items()}


def _sent(own: pd.DataFrame, evaluation: Evaluation, name: str) -> Sent | None:
    rows = records(own[own["metric"] == name])
    if not rows:
        return None
    scores = evaluation.scores[evaluation.scores["metric"] == name]
    return Sent(mean=of_row(rows[0]), worst=plain(scores["value"].max()), n=int(rows[0]["n"]))


def _sentence(
    promise: Promise | None,
    recorded: Sent | None,
    sent: Sent | None,
    bounds: Sequence[Bound],
    releases: Sequence[Mapping[str, Any]],
) -> str:
    parts = ["the controller declares none" if promise is None else f"the controller declares {_promised(promise)}"]
    if not releases:
        parts.append("the recording declares no clipping and no noise")
    if recorded is not None:
        parts.append(f"the recording declares epsilon {shown(recorded.worst)} for the worst client")
    unit = promise is not None and promise.unit != "client"
    if sent is not None:
        note = " (per client, so it does not compare with the declaration)" if unit else ""
        parts.append(f"as sent, the worst client has epsilon {shown(sent.worst)}{note}")
    elif releases or promise is not None:
        parts.append("whether the noise was really sent was not looked at")
    if bounds:
        best = max(bounds, key=lambda one: (one.value == "infinite", one.value or 0.0))
        refuted = {True: "refutes", False: "does not refute", None: "does not compare with"}[best.refutes]
        parts.append(f"the largest lower bound from canaries is {shown(best.value)}, which {refuted} the declaration")
    return f"Differential privacy: {'; '.join(parts)}."


def _promised(promise: Promise) -> str:
    span = "the whole training" if promise.rounds is None else f"{promise.rounds} rounds"
    return f"epsilon {promise.value:g} with delta {promise.delta:g}, per {promise.unit}, over {span}"


def _pyramid(
    system: System, sent: Sent | None, bounds: Sequence[Bound], releases: Sequence[Mapping[str, Any]]
) -> list[Level]:
    """A line for each item, from the top."""
    promise, unseen, said = system.epsilon, "not looked at", "declared"
    readers = ", ".join(system.readers)
    checked = f"as sent: epsilon {shown(sent.worst)} for the worst of {sent.n} clients" if sent is not None else ""
    attacked = ", ".join(f"{one.metric} {shown(one.value)} (n = {one.n})" for one in bounds)
    lines: list[tuple[str, str, str, str]] = [
        ("top", "epsilon and delta", "checked" if checked else said, checked or "none is declared"),
        ("top", "unit of privacy", said if promise else unseen, promise.unit if promise else "none is declared"),
        (
            "middle",
            "correctness of the mechanism",
            "checked" if checked else unseen,
            checked and "by the release check",
        ),
        ("middle", "attacks on the mechanism", "checked" if attacked else unseen, attacked or "no canaries"),
        ("middle", "composition over rounds", said if promise else unseen, _span(promise)),
        ("middle", "trust model", said, f"who can read single updates: {readers}"),
        ("middle", "utility and bias", unseen, ""),
        ("middle", "side channels, e.g. sizes and times of messages, logs", unseen, ""),
        ("bottom", "security and retention", said, system.retention),
        ("bottom", "exposure by collecting data", said, system.purpose),
    ]
    if promise is not None and not checked:
        lines[0] = ("top", "epsilon and delta", said, _promised(promise))
    elif promise is None and not checked:
        note = "none is declared" if not releases else "none is declared, though the recording declares noise"
        lines[0] = ("top", "epsilon and delta", unseen, note)
    return [Level.model_validate(dict(zip(("level", "item", "status", "note"), line, strict=True))) for line in lines]


def _span(promise: Promise | None) -> str:
    if promise is None:
        return "none is declared"
    return "the whole training" if promise.rounds is None else f"{promise.rounds} rounds"
