"""Results as numbers with names, for dashboards."""

from typing import Any

import pandas as pd

from fedleak.evaluation.scores import differing, records
from fedleak.reports.tables import described_settings


def named_results(results: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    """Rows of results by ``audit/ATTACK/METRIC``, or ``audit/ATTACK, SETTING/METRIC`` if settings differ."""
    settings = described_settings(results, differing(results))
    named = []
    for row, setting in zip(records(results), settings, strict=True):
        attack_in_setting = ", ".join(part for part in (row["attack"], setting) if part)
        named.append((f"audit/{attack_in_setting}/{row['metric']}", row))
    return named


def leaks(results: pd.DataFrame) -> dict[str, float]:
    """Means of `named_results`."""
    return {name: row["mean"] for name, row in named_results(results)}


def leak_numbers(results: pd.DataFrame) -> dict[str, float]:
    """Means of `named_results`, and the ends of their 95% intervals under ``NAME low`` and ``NAME high``."""
    numbers = {}
    for name, row in named_results(results):
        numbers[name] = row["mean"]
        numbers[f"{name} low"] = row["low"]
        numbers[f"{name} high"] = row["high"]
    return numbers
