"""A long table made wide: one column for each value of a key, e.g. of the privacy budget."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.results import Result
from reports.settings import describe, differing, number

_ACROSS = (
    *("epsilon", "participants", "manipulated_users", "scale", "queries", "ratio", "rounds", "round", "interactions"),
    *("known_examples", "known_messages", "seen", "amount", "asked_from", "examples_in_a_set"),
)
"""Keys whose values may become columns, the first that varies most."""
_WORDS = ("prior", "mitigation", "layer")
"""Keys of words that become columns where no number varies."""
_LONG = 24
"""Cells from which a table is better read wide."""


@dataclass(frozen=True)
class Pivot:
    """A wide table.

    Attributes:
        header: names of the columns.
        rows: as many texts each.
    """

    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


def pivot(results: Sequence[Result]) -> Pivot | None:
    """The results as a wide table; None where they are few or no key varies.

    A cell reads ``mean±half the interval (paper)``.
    """
    key = across(results) or _most_varied(results, _WORDS)
    if key is None or len(results) < _LONG:
        return None
    columns = list(dict.fromkeys(_column(r, key) for r in results))
    named = differing([result.setting for result in results]) - {key}
    lines: dict[tuple[str, str, str], dict[str, Result]] = {}
    for result in results:
        where = describe(result.setting, named)
        line = lines.setdefault((where, result.attack, result.metric), {})
        line[_column(result, key)] = result
    several_metrics = len({r.metric for r in results}) > 1
    rows = [_row(name, line, columns, several_metrics) for name, line in lines.items()]
    metric = ("metric",) if several_metrics else ()
    return Pivot(("setting", "attack", *metric, *columns, "n"), rows)


def _column(result: Result, key: str) -> str:
    return f"{key} {result.setting[key]}" if key in result.setting else f"any {key}"


def across(results: Sequence[Result]) -> str | None:
    """The key of numbers whose values become columns, or a figure's axis."""
    return _most_varied(results, _ACROSS)


def _most_varied(results: Sequence[Result], keys: Sequence[str]) -> str | None:
    counts = {key: len({str(r.setting[key]) for r in results if key in r.setting}) for key in keys}
    best = max(keys, key=lambda key: counts[key])
    return best if counts[best] > 1 else None


def _row(
    name: tuple[str, str, str], line: Mapping[str, Result], columns: Sequence[str], with_metric: bool
) -> tuple[str, ...]:
    where, attack, metric = name
    sizes = sorted({result.n for result in line.values()})
    size = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    cells = (_cell(line[column]) if column in line else "" for column in columns)
    return (where, attack, *((metric,) if with_metric else ()), *cells, size)


def _cell(result: Result) -> str:
    if math.isnan(result.mean):
        return "-"
    half = (result.ci95[1] - result.ci95[0]) / 2
    paper: Any = "" if result.paper is None else f" ({result.paper.value:.2f})"
    return f"{number(result.mean)}±{number(half)}{paper}"
