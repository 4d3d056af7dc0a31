"""Differences that a gate holds against a limit: from a reference, and from the best baseline."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedleak.core.metric_table import metric
from fedleak.evaluation.audited_results import AuditedResults
from fedleak.evaluation.change import Change
from fedleak.evaluation.changes import Changes
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.limited_value import AgainstLimit, AttackInSetting, LimitedValue, hidden
from fedleak.evaluation.limits import FEWEST, Limit
from fedleak.evaluation.paired_means import crossed, mean_over_clients, paired
from fedleak.evaluation.scores import number, rows_of

ONE_TRAINING = (
    "each side is one training, and trainings of one system differ too; give runs of several trainings a side"
)
"""Why a difference between two trainings is no proof of a change of the system."""


def changes_from_reference(limit: Limit, changes: Changes) -> AgainstLimit:
    """Differences between the best attacks of each question in a run and in the reference."""
    rows = []
    for row in changes.rows:
        if row.best and limit.applies(row.family, row.question):
            rows.append(row)
    values = [_change_from_reference(limit, row, changes, tests=len(rows)) for row in rows]
    sentences = [note.rstrip(".") for note in changes.not_compared]
    return AgainstLimit(values, "; ".join(sentences))


def _change_from_reference(limit: Limit, row: Change, changes: Changes, tests: int) -> LimitedValue:
    """One difference between a run and the reference, of so many."""
    value = row.sign * row.change
    doubt = excuse = None
    if changes.same:
        # Every client and attack has the same value in both, so that nothing is inferred.
        safe = leaky = value
    else:
        # The safe end, widened for all tests, is the lower end if more of the metric leaks more, else the upper one.
        low_tests, high_tests = (tests, 1) if row.sign > 0 else (1, tests)
        low, high = row.ends(low_tests, high_tests)
        safe, leaky = sorted((row.sign * low, row.sign * high))
        if row.gaps is not None:
            gaps = row.sign * row.gaps
            doubt = hidden(gaps, limit=limit.bound, tests=tests, binary=metric(row.metric).binary)
        if row.seeds < 2:
            excuse = ONE_TRAINING
    before = f"{row.metric} {number(row.reference)} by {row.reference_attack} in {changes.reference}"
    return LimitedValue(
        AttackInSetting(row.attack),
        value,
        safe,
        leaky,
        row.n,
        enough=changes.same or row.n >= FEWEST,
        doubt=doubt,
        about=f"{row.family}: {before}, {number(row.value)} in {changes.run}",
        excuse=excuse,
        is_fact=changes.same,
    )


def beyond_baseline(limit: Limit, rows: Sequence[Mapping[str, Any]], audited: AuditedResults) -> AgainstLimit:
    """Differences between attacks and the best baseline of their question and setting, on the same clients.

    What an attack is compared with is that of `fedleak.evaluation.comparisons.Cells.comparison`.
    `rows` are results of attacks for metrics that judge them.
    """
    values, without_baseline = [], []
    cells = Cells(audited.results)
    for row in rows:
        value = _over_baseline(limit, row, audited, cells, tests=len(rows))
        if value is None:
            without_baseline.append(f"{row['family']}/{row['metric']}")
        else:
            values.append(value)
    named = ", ".join(dict.fromkeys(without_baseline))
    return AgainstLimit(values, f"no baseline for {named}" if named else "")


def _over_baseline(
    limit: Limit, row: Mapping[str, Any], audited: AuditedResults, cells: Cells, tests: int
) -> LimitedValue | None:
    """The difference between an attack and its best baseline, of so many; None if there is none."""
    all_scores = audited.evaluation.scores
    scores = rows_of(all_scores, row)
    best = _best_baseline(row, cells)
    if best is None or scores.empty or not math.isfinite(row["mean"]):
        return None
    label, baseline = best
    # A number that guessing reaches is subtracted from each client; a baseline that ran, client by client.
    if isinstance(baseline, float):
        mean = mean_over_clients(scores).minus(baseline)
        gaps = crossed(scores) - baseline
    else:
        baseline_scores = rows_of(all_scores, baseline).assign(metric=row["metric"])
        mean, gaps, _ = paired(scores, baseline_scores)
    if gaps.empty:
        return None
    n = int(gaps.notna().any(axis=1).sum())
    of_clients = gaps.mean(axis=1)
    entry = metric(row["metric"])
    if entry.lower_is_better:
        mean = -mean
        of_clients = -of_clients
    safe, leaky = mean.ends(low_tests=tests)
    return LimitedValue(
        audited.attack_in_setting(row),
        mean.mean,
        safe,
        leaky,
        n,
        enough=n >= FEWEST,
        doubt=hidden(of_clients, limit=limit.bound, tests=tests, binary=entry.binary),
        about=f"{row['family']}: {row['metric']} {number(row['mean'])}, {label}",
        mean=mean,
        tests=tests,
    )


def _best_baseline(row: Mapping[str, Any], cells: Cells) -> tuple[str, float | dict[str, Any]] | None:
    """Description of what an attack is compared with, and its value or its row of results; None for nothing."""
    comparison = cells.comparison(row)
    if comparison is None:
        return None
    if comparison.row is not None:
        return f"{comparison.name} {number(comparison.value)}", comparison.row
    if comparison.kind == "guessing":
        return f"guessing {comparison.value:g}", comparison.value
    return "no baseline", comparison.value
