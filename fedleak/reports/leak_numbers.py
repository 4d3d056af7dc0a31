"""Results as numbers with names, for dashboards."""

from typing import Any

import pandas as pd

from fedleak.evaluation.scores import differing, records
from fedleak.reports.tables import described_settings


def named_results(results: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    """Rows of results by ``audit/ATTACK/METRIC``, or ``audit/ATTACK, SETTING/METRIC`` if settings differ."""
    settings = described_settings(results, differing(results))
    parts = zip(results["attack"], settings, results["metric"], strict=True)
    names = [f"audit/{', '.join(part for part in (attack, where) if part)}/{metric}" for attack, where, metric in parts]
    return list(zip(names, records(results), strict=True))


def leaks(results: pd.DataFrame) -> dict[str, float]:
    """Means of `named_results`."""
    return {name: row["mean"] for name, row in named_results(results)}


def leak_numbers(results: pd.DataFrame) -> dict[str, float]:
    """Means of `named_results`, and the ends of their 95% intervals under ``NAME low`` and ``NAME high``."""
    ends = (("", "mean"), (" low", "low"), (" high", "high"))
    return {name + suffix: row[column] for name, row in named_results(results) for suffix, column in ends}
