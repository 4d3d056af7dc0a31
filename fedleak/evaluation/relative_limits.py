"""Limits on differences of a gate: between a run and a reference, and between attacks and the best baseline."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedleak.core.metric_table import metric
from fedleak.evaluation.answers import Cells
from fedleak.evaluation.changes import Changes
from fedleak.evaluation.limit_names import Asked
from fedleak.evaluation.limits import FEWEST, Measured, hidden
from fedleak.evaluation.paired_means import crossed, mean_over_clients, paired
from fedleak.evaluation.scores import describe, number, rows_of, setting_of

ONE_TRAINING = (
    "each side is one training, and trainings of one system differ too; give runs of several trainings a side"
)
"""Why a difference between two trainings is no proof of a change of the system."""


@dataclass(frozen=True)
class Differences:
    """Differences that a limit is held against, in units in which more is more leakage.

    Attributes:
        measured: the differences.
        left_out: what the limit says nothing about; empty for nothing.
    """

    measured: Sequence[Measured]
    left_out: str = ""


def changed(changes: Changes, asked: Asked, limit: float) -> Differences:
    """Differences between the best attacks of each question in a run and in the reference."""
    rows = [row for row in changes.rows if row.best and asked(row.family, row.question)]
    differences = []
    for row in rows:
        value = row.sign * row.change
        if changes.same:  # of every client and attack, so that nothing is inferred
            safe, leaky, doubt = value, value, None
        else:
            low_tests, high_tests = (len(rows), 1) if row.sign > 0 else (1, len(rows))
            safe, leaky = sorted(row.sign * end for end in row.ends(low_tests, high_tests))
            gaps = None if row.gaps is None else row.sign * row.gaps
            binary = metric(row.metric).binary
            doubt = None if gaps is None else hidden(gaps, limit=limit, tests=len(rows), binary=binary)
        excuse = ONE_TRAINING if row.seeds < 2 and not changes.same else None
        compared = f"{row.metric} {number(row.reference)} by {row.reference_attack} in {changes.reference}"
        about = f"{row.family}: {compared}, {number(row.value)} in {changes.run}"
        enough = changes.same or row.n >= FEWEST
        differences.append(
            Measured(row.attack, value, safe, leaky, row.n, enough, doubt, about, excuse, whole=changes.same)
        )
    return Differences(differences, "; ".join(note.rstrip(".") for note in changes.notes if note.startswith("Only in")))


def beyond_baseline(
    rows: Sequence[Mapping[str, Any]], results: pd.DataFrame, scores: pd.DataFrame, keys: set[str], limit: float
) -> Differences:
    """Differences between attacks and the best baseline of their question and setting, on the same clients.

    Guessing counts as a baseline, and an attack's own value by chance; without any, 0 where more is more leakage.

    Args:
        rows: results of attacks, for metrics that judge them.
        results: all results.
        scores: their scores.
        keys: settings that differ between results.
        limit: largest difference.
    """
    differences, without, cells = [], dict[str, None](), Cells(results)
    for row in rows:
        entry, attack_scores = metric(row["metric"]), rows_of(scores, row)
        best = _best_baseline(row, cells)
        if best is None or attack_scores.empty or not math.isfinite(row["mean"]):
            without[f"{row['family']}/{row['metric']}"] = None
            continue
        label, baseline = best
        if isinstance(baseline, float):
            mean = mean_over_clients(attack_scores).minus(baseline)
            gaps = crossed(attack_scores) - baseline
        else:
            mean, gaps, _ = paired(attack_scores, rows_of(scores, baseline).assign(metric=row["metric"]))
        if gaps.empty:
            without[f"{row['family']}/{row['metric']}"] = None
            continue
        n = int(gaps.notna().any(axis=1).sum())
        of_clients = gaps.mean(axis=1)
        if entry.lower_is_better:
            mean, of_clients = -mean, -of_clients
        safe, leaky = mean.ends(low_tests=len(rows))
        doubt = hidden(of_clients, limit=limit, tests=len(rows), binary=entry.binary)
        setting = describe(setting_of(row), keys)
        about = f"{row['family']}: {row['metric']} {number(row['mean'])}, {label}"
        attack = f"{row['attack']} in {setting}" if setting else str(row["attack"])
        differences.append(
            Measured(attack, mean.mean, safe, leaky, n, n >= FEWEST, doubt, about, mean=mean, tests=len(rows))
        )
    return Differences(differences, f"no baseline for {', '.join(without)}" if without else "")


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
