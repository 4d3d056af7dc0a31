"""Differential privacy in a statement: declared, as sent, lower bounds, and the pyramid of NIST SP 800-226."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedleak.core.bounds_at_delta import bound_at, gaussian_at
from fedleak.core.errors import ViewError
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import records
from fedleak.reports.statement.measured import DECLARED_PRIVACY
from fedleak.reports.statement.numbers import Cell, of_row, plain, shown
from fedleak.reports.statement.privacy_content import Bound, Privacy, Sent
from fedleak.reports.statement.privacy_words import ledger_in_words, privacy_sentence
from fedleak.reports.statement.pyramid import pyramid
from fedleak.reports.statement.system_file import Promise, System

BOUNDS = ("epsilon-gdp", "epsilon-cp", "epsilon-one-run", "epsilon-one-run-fdp")
"""Metrics of lower bounds from canaries: the first that an audit gives is the bound, the others check it."""


def privacy(
    results: pd.DataFrame, evaluation: Evaluation, system: System, releases: Sequence[Mapping[str, Any]]
) -> Privacy:
    """Differential privacy as declared and as measured; `releases` is what clients do before they send.

    References:
        [Near25].
    """
    checks = results[(results["family"] == DECLARED_PRIVACY) & results["mean"].notna()]
    checks = checks[checks["role"].isin(ATTACKS)]
    promise = system.epsilon
    tables = _details(evaluation)
    recorded = _sent(checks, evaluation, "epsilon-declared", promise, tables)
    sent = _sent(checks, evaluation, "epsilon", promise, tables)
    bounds = _bounds(checks, promise, tables)
    findings: list[dict[str, Cell]] = []
    for rows in tables.values():
        findings += [row for row in rows if "check" in row]
    return Privacy(
        declared=promise,
        recorded=recorded,
        as_sent=sent,
        lower_bounds=bounds,
        findings=findings,
        sentence=privacy_sentence(promise, recorded, sent, bounds, releases),
        pyramid=pyramid(system, sent, bounds, releases, ledger_in_words(findings)),
    )


def _details(evaluation: Evaluation) -> dict[str, list[dict[str, Cell]]]:
    """Rows of the checks' own tables, with plain numbers."""
    checks = {label for label, info in evaluation.lines.items() if info.family == DECLARED_PRIVACY}
    tables = {}
    for label, table in evaluation.details.items():
        if label in checks:
            tables[label] = [{name: _plain(value) for name, value in row.items()} for row in records(table)]
    return tables


def _plain(value: Any) -> Cell:
    """A value of a table as JSON can hold it."""
    if isinstance(value, float):
        return plain(value)
    cell: Cell = value
    return cell


def _row_with(rows: Sequence[Mapping[str, Any]], key: str, value: str) -> Mapping[str, Any] | None:
    """The first row with a value of a key; None if there is none."""
    return next((row for row in rows if row.get(key) == value), None)


def _bounds(
    checks: pd.DataFrame, promise: Promise | None, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[Bound]:
    """Lower bounds, the one that decides first: the first of `BOUNDS` that compares, or else that is given."""
    rows = records(checks[checks["metric"].isin(BOUNDS)])
    rows.sort(key=lambda row: BOUNDS.index(row["metric"]))
    # Each with its value in the terms of the declaration, None where it does not compare.
    compared: list[tuple[dict[str, Any], float | None, str]] = []
    for row in rows:
        entry = _row_with(tables.get(row["attack"], ()), "bound", row["metric"])
        fields: dict[str, Any] = {
            "metric": row["metric"],
            "value": plain(row["mean"]),
            "n": int(row["n"]),
            "delta": None,
            "rounds": None,
        }
        if entry is not None:
            fields["delta"] = entry["delta"]
            fields["rounds"] = entry["rounds"] and int(entry["rounds"])
        at_declared, note = _at_declared(entry, promise)
        compared.append((fields, at_declared, note))
    # Only the first bound that compares decides; the others are checks, whose largest would be no 95% bound.
    decisive = 0
    for position, (_, at_declared, _) in enumerate(compared):
        if at_declared is not None:
            decisive = position
            break
    bounds: list[Bound] = []
    for fields, at_declared, note in [
        *compared[decisive : decisive + 1],
        *compared[:decisive],
        *compared[decisive + 1 :],
    ]:
        is_check = bool(bounds)
        refutes = None
        if not is_check and at_declared is not None and promise is not None:
            refutes = bool(at_declared > promise.value)
        bound = Bound(
            **fields,
            at_declared=None if at_declared is None else plain(at_declared),
            role="check" if is_check else "bound",
            refutes=refutes,
            note=note,
        )
        bounds.append(bound)
    return bounds


def _at_declared(entry: Mapping[str, Any] | None, promise: Promise | None) -> tuple[float | None, str]:
    """A bound in the terms of the declaration, and what to note about it."""
    if promise is None:
        return None, "no epsilon is declared"
    if promise.unit != "client":
        return None, f"it is per client, the declaration per {promise.unit}"
    if entry is None:
        return None, "the audit does not say its delta"
    try:
        value = bound_at(entry, promise.delta, promise.rounds)
    except ViewError as error:
        return None, str(error)
    note = f"at delta {shown(promise.delta)}"
    # A promise over fewer rounds than the bound covers is compared over these.
    if promise.rounds is not None and promise.rounds < entry["rounds"]:
        note += f" over {promise.rounds} rounds"
    return value, note


def _sent(
    checks: pd.DataFrame,
    evaluation: Evaluation,
    name: str,
    promise: Promise | None,
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Sent | None:
    """Epsilon of the updates by a metric of the release check; None if it was not looked at."""
    rows = records(checks[checks["metric"] == name])
    if not rows:
        return None
    row = rows[0]
    scores = evaluation.scores
    worst = float(scores[(scores["attack"] == row["attack"]) & (scores["metric"] == name)]["value"].max())
    delta = None
    messages = None
    entry = _row_with(tables.get(row["attack"], ()), "check", "epsilon")
    if entry is not None:
        delta = float(entry["delta"])
        messages = int(entry["messages"])
    # Gaussian noise of a client compares with a promise per client at another delta, and over fewer messages.
    at_declared = None
    promised_per_client = promise is not None and promise.unit == "client" and promise.delta > 0
    if promise is not None and promised_per_client and delta is not None and messages:
        share_of_messages = min((promise.rounds or messages) / messages, 1.0)
        at_declared = plain(gaussian_at(worst, delta, promise.delta, share_of_messages))
    return Sent(
        mean=of_row(row),
        worst=plain(worst),
        n=int(row["n"]),
        delta=delta,
        messages=messages,
        at_declared=at_declared,
    )
