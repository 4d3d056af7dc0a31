"""What an entry of a site's log holds, for readers of a log that another guard, or a person, wrote."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedleak_guard.chained_log import read_log
from fedleak_recorder.errors import require

_LATEST = 253402300799
"""Seconds of the last day that a date can have, 9999-12-31."""


def read_decisions(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All entries of a log whose chain is whole, and the number of bytes of an incomplete last one.

    Raises:
        InputError: the log cannot be read, its chain is broken, or an entry is no decision of a guard.
    """
    entries, torn = read_log(path)
    for entry in entries:
        problem = strange_entry(entry)
        way_out = "Give the log that a guard wrote."
        require(problem is None, "a decision of the guard", f"{problem} in entry {entry['number']} of {path}", way_out)
    return entries, torn


def strange_entry(entry: Mapping[str, Any]) -> str | None:
    """What is no part of a decision, described; None if the entry is one."""
    for name, fits in _PARTS.items():
        if name not in entry:
            return f"no {name}"
        if not fits(entry[name]):
            return f"{type(entry[name]).__name__} as {name}"
    # Values of outcomes are what budgets, thresholds and summaries are computed from.
    for name, outcome in entry["checks"].items():
        if not isinstance(outcome, dict) or not isinstance(outcome.get("found"), bool):
            return f"no outcome of the check {name[:60]!a}"
        for part in ("value", "limit"):
            if part not in outcome or not _is_number_or_none(outcome[part]):
                return f"no {part} of the check {name[:60]!a}"
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_number_or_none(value: object) -> bool:
    return value is None or _is_number(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(part, str) for part in value.values())


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_statistics(value: object) -> bool:
    """Whether a value gives numbers or texts by name, for each check by its name."""
    if not isinstance(value, dict):
        return False
    for statistics in value.values():
        if not isinstance(statistics, dict):
            return False
        for statistic in statistics.values():
            if not isinstance(statistic, str) and not _is_number_or_none(statistic):
                return False
    return True


_PARTS: dict[str, Callable[[Any], bool]] = {
    "time": lambda value: _is_number(value) and 0 <= value <= _LATEST,
    "date": _is_text,
    "event": lambda value: value in ("released", "refused"),
    "job": _is_text,
    "round": _is_whole,
    "policy": _is_text,
    "tensors": _is_whole,
    "metrics": _is_whole,
    "noised": lambda value: isinstance(value, bool),
    "precision": lambda value: value is None or (_is_number(value) and value >= 0),
    "checks": lambda value: isinstance(value, dict),
    "not_made": _is_texts,
    "statistics": _is_statistics,
    "reasons": lambda value: isinstance(value, list) and all(map(_is_text, value)),
}
"""What each part of an entry may be; more parts may stand in it."""
