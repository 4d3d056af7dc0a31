"""Differential privacy in a statement: declared, as sent, lower bounds, and the pyramid of NIST SP 800-226."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedleak.core.epsilon_bounds import bound_at, gaussian_at
from fedleak.core.errors import ViewError
from fedleak.core.privacy_ledger import LEDGER_CHECKS, SUBSAMPLING
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import records
from fedleak.reports.statement.content import Bound, Level, Privacy, Sent
from fedleak.reports.statement.measured import DECLARED_PRIVACY
from fedleak.reports.statement.numbers import Cell, of_row, plain, shown
from fedleak.reports.statement.system_file import Promise, System

BOUNDS = ("epsilon-gdp", "epsilon-cp", "epsilon-one-run", "epsilon-one-run-fdp")
"""Metrics of lower bounds from canaries: the first that an audit gives is the bound, the others check it."""
_ASSUMES: Mapping[str, str] = {
    "epsilon-gdp": "if the canaries' scores are Gaussian, as its test says",
    "epsilon-cp": "by the counts of right guesses",
    "epsilon-one-run": "which assumes nothing but fair coins",
    "epsilon-one-run-fdp": "for the trade-off of Gaussian noise",
}
"""What each bound relies on, in words."""


def privacy(
    results: pd.DataFrame, evaluation: Evaluation, system: System, releases: Sequence[Mapping[str, Any]]
) -> Privacy:
    """Differential privacy as declared and as measured; `releases` is what clients do before they send.

    References:
        Near, Darais, Lefkovitz and Howarth, "Guidelines for Evaluating Differential Privacy Guarantees", NIST SP
        800-226, 2025.
    """
    own = results[(results["family"] == DECLARED_PRIVACY) & results["mean"].notna()]
    own = own[own["role"].isin(ATTACKS)]
    promise, tables = system.epsilon, _details(evaluation)
    recorded, sent = (_sent(own, evaluation, name, promise, tables) for name in ("epsilon-declared", "epsilon"))
    bounds = _bounds(own, promise, tables)
    findings = [row for rows in tables.values() for row in rows if "check" in row]
    return Privacy(
        declared=promise,
        recorded=recorded,
        as_sent=sent,
        lower_bounds=bounds,
        findings=findings,
        sentence=_sentence(promise, recorded, sent, bounds, releases),
        pyramid=_pyramid(system, sent, bounds, releases, _ledger(findings)),
    )


def _details(evaluation: Evaluation) -> dict[str, list[dict[str, Cell]]]:
    """Rows of the checks' own tables, with plain numbers."""
    checks = {label for label, line in evaluation.lines.items() if line.family == DECLARED_PRIVACY}
    return {
        label: [{k: plain(v) if isinstance(v, float) else v for k, v in row.items()} for row in records(table)]
        for label, table in evaluation.details.items()
        if label in checks
    }


def _bounds(
    own: pd.DataFrame, promise: Promise | None, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[Bound]:
    """Lower bounds, the one that decides first: the first of `BOUNDS` that compares, or else that is given."""
    found = []
    for row in sorted(records(own[own["metric"].isin(BOUNDS)]), key=lambda row: BOUNDS.index(row["metric"])):
        entry = next((one for one in tables.get(row["attack"], ()) if one.get("bound") == row["metric"]), None)
        common: dict[str, Any] = {"metric": row["metric"], "value": plain(row["mean"]), "n": int(row["n"])}
        common |= {name: None if entry is None else entry[name] for name in ("delta", "rounds")}
        common["rounds"] = common["rounds"] and int(common["rounds"])
        found.append((common, *_at_declared(entry, promise)))
    decides = next((place for place, (_, value, _) in enumerate(found) if value is not None), 0)
    ordered = [*found[decides : decides + 1], *found[:decides], *found[decides + 1 :]]
    bounds = []
    for place, (common, value, note) in enumerate(ordered):
        decided = place == 0 and value is not None and promise is not None
        refutes = bool(value > promise.value) if decided else None  # type: ignore[operator, union-attr]
        at = None if value is None else plain(value)
        bounds.append(Bound(**common, at_declared=at, role="check" if place else "bound", refutes=refutes, note=note))
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
    covered = "" if promise.rounds is None or promise.rounds >= entry["rounds"] else f" over {promise.rounds} rounds"
    return value, f"at delta {shown(promise.delta)}{covered}"


def _sent(
    own: pd.DataFrame,
    evaluation: Evaluation,
    name: str,
    promise: Promise | None,
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Sent | None:
    rows = records(own[own["metric"] == name])
    if not rows:
        return None
    attack, scores = rows[0]["attack"], evaluation.scores
    worst = float(scores[(scores["attack"] == attack) & (scores["metric"] == name)]["value"].max())
    entry = next((one for one in tables.get(attack, ()) if one.get("check") == "epsilon"), None)
    delta, messages = (None, None) if entry is None else (float(entry["delta"]), int(entry["messages"]))
    comparable = promise is not None and promise.unit == "client" and promise.delta > 0 and delta is not None
    at = None
    if comparable and promise is not None and delta is not None and messages:
        at = plain(gaussian_at(worst, delta, promise.delta, min((promise.rounds or messages) / messages, 1.0)))
    return Sent(
        mean=of_row(rows[0]),
        worst=plain(worst),
        n=int(rows[0]["n"]),
        delta=delta,
        messages=messages,
        at_declared=at,
    )


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
        parts.append(f"the recording declares {_of_worst(recorded, promise)}")
    if sent is not None:
        parts.append(f"as sent, it is {_of_worst(sent, promise)}")
    elif releases or promise is not None:
        parts.append("whether the noise was really sent was not looked at")
    if bounds:
        parts.append(_about_bound(bounds[0], len(bounds) - 1))
    return f"Differential privacy: {'; '.join(parts)}."


def _of_worst(sent: Sent, promise: Promise | None) -> str:
    """Epsilon of the worst client with its delta and messages, and in the terms of the declaration."""
    text = f"epsilon {shown(sent.worst)} for the worst client"
    if sent.delta is not None:
        text += f", with delta {shown(sent.delta)} over {sent.messages} of its messages"
    if sent.at_declared is not None and sent.at_declared != sent.worst:
        return f"{text}, which is {shown(sent.at_declared)} at the delta and rounds of the declaration"
    if promise is None or sent.at_declared is not None:
        return text
    why = "per client, so it" if promise.unit != "client" else "it"
    return f"{text} ({why} does not compare with the declaration)"


def _about_bound(bound: Bound, checks: int) -> str:
    own = "" if bound.delta is None else f" with delta {shown(bound.delta)} over {bound.rounds} rounds"
    text = f"the lower bound from {bound.n} canaries is {shown(bound.value)}{own} ({_ASSUMES[bound.metric]})"
    others = f"; {checks} other bounds, which check it, decide nothing" if checks else ""
    if bound.refutes is None:
        return f"{text}, which does not compare with the declaration: {bound.note}{others}"
    verdict = "refutes" if bound.refutes else "does not refute"
    if bound.at_declared != bound.value:
        text += f", {shown(bound.at_declared)} at the delta and rounds of the declaration"
    return f"{text}, which {verdict} the declaration{others}"


def _promised(promise: Promise) -> str:
    return (
        f"epsilon {shown(promise.value)} with delta {shown(promise.delta)}, per {promise.unit}, over {_span(promise)}"
    )


def _ledger(findings: Sequence[Mapping[str, Cell]]) -> str:
    """Rounds and epsilon of the worst and of the median client; empty if several rounds were not looked at."""
    by_check = {row["check"]: row for row in findings}
    rows = {who: by_check[check] for who, check in LEDGER_CHECKS.items() if check in by_check}
    if not rows:
        return ""
    spent = []
    for who, row in rows.items():
        # The table has no infinite numbers: an empty one is that of noise without a clip.
        epsilon = "infinite" if row["declared"] is None else shown(float(row["declared"]))
        spent.append(
            f"{who}: epsilon {epsilon} at the declared noise, over {shown(float(row['messages'] or 0))} rounds"
        )
    return f"{'; '.join(spent)}. {SUBSAMPLING}"


def _pyramid(
    system: System,
    sent: Sent | None,
    bounds: Sequence[Bound],
    releases: Sequence[Mapping[str, Any]],
    ledger: str,
) -> list[Level]:
    """A line for each item, from the top."""
    promise, unseen, said = system.epsilon, "not looked at", "declared"
    readers, declared = ", ".join(system.readers), said if promise else unseen
    checked = f"as sent: {_of_worst(sent, promise)}; n = {sent.n}" if sent is not None else ""
    attacked = ", ".join(f"{one.metric} {shown(one.value)} (n = {one.n}, {one.role})" for one in bounds)
    if checked:
        top = "checked", checked
    elif promise is not None:
        top = said, _promised(promise)
    else:
        top = unseen, "none is declared" + (", though the recording declares noise" if releases else "")
    lines: list[tuple[str, str, str, str]] = [
        ("top", "epsilon and delta", *top),
        ("top", "unit of privacy", declared, promise.unit if promise else "none is declared"),
        ("middle", "correctness of the mechanism", *(("checked", "by the release check") if checked else (unseen, ""))),
        ("middle", "attacks on the mechanism", "checked" if attacked else unseen, attacked or "no canaries"),
        ("middle", "composition over rounds", *(("checked", ledger) if ledger else (declared, _span(promise)))),
        ("middle", "trust model", said, f"who can read single updates: {readers}"),
        ("middle", "utility and bias", unseen, ""),
        ("middle", "side channels, e.g. sizes and times of messages, logs", unseen, ""),
        ("bottom", "security and retention", said, system.retention),
        ("bottom", "exposure by collecting data", said, system.purpose),
    ]
    return [Level.model_validate(dict(zip(("level", "item", "status", "note"), line, strict=True))) for line in lines]


def _span(promise: Promise | None) -> str:
    if promise is None:
        return "none is declared"
    if promise.rounds is None:
        return "the whole training"
    return "one round" if promise.rounds == 1 else f"{promise.rounds} rounds"
