"""Tables of a report: one row per cell, or wide with one column per value of a setting or per metric."""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedleak.core.metric_table import metric as metric_of
from fedleak.evaluation.result_names import ATTACKS, DATA, RATIO
from fedleak.evaluation.scores import SETTING, describe, differing, number, records, setting_columns, setting_of

HEADER = ("attack", "setting", "metric", "mean", "95% interval", "n", "paper", "difference", "ms per victim")
DIFFERENCES = ("attack", "minus", "setting", "metric", "difference", "95% interval", "ratio", "n")
_LONG = 24
"""Smallest number of cells for a wide table."""
_MOST_COLUMNS = 12
"""Values of a setting above which they are rows."""
_PAGE, _LONGEST = 112, 40
"""Characters in a row of a page, and in a cell that is not broken."""
_MOST_ROWS = 40
_NUMBER = re.compile(r"([+-]?[\d.]+|-?inf|-)(\D.*)?")


@dataclass(frozen=True)
class Table:
    """Table of a page.

    Attributes:
        name: name of its files.
        caption: sentences above it.
        rows: rows, as texts or numbers.
        attacks: number of first rows that are attacks, above the baselines; None for a table without groups.
        folded: whether the page shows it on demand only.
    """

    name: str
    caption: str
    rows: pd.DataFrame
    attacks: int | None = None
    folded: bool = False

    @property
    def long(self) -> bool:
        """Whether a page shows it on demand only, because it is of less interest or has many rows."""
        return self.folded or len(self.rows) > _MOST_ROWS

    @functools.cached_property
    def texts(self) -> pd.DataFrame:
        """The rows as texts."""
        return self.rows.map(_text)

    @functools.cached_property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers, which are aligned to the right."""
        return [is_numeric(values.tolist()) for _, values in self.texts.items()]

    @functools.cached_property
    def parts(self) -> list[list[int]]:
        """Positions of the columns of each part of the table, as wide as a page; each has the texts on the left."""
        widths = [
            min(max(map(len, [*str(name).replace("_", " ").replace("-", " ").split(), *values])), _LONGEST) + 2
            for name, values in self.texts.items()
        ]
        fixed = next((place for place, numeric in enumerate(self.numeric) if numeric), len(widths))
        found: list[list[int]] = [[]]
        for place in range(fixed, len(widths)):
            used = sum(widths[:fixed]) + sum(widths[other] for other in found[-1])
            if found[-1] and used + widths[place] > _PAGE:
                found.append([])
            found[-1].append(place)
        return [[*range(fixed), *part] for part in found]


def is_numeric(texts: Sequence[str]) -> bool:
    """Whether all texts of a column start with a number, or are empty."""
    return any(texts) and all(_NUMBER.fullmatch(text) for text in texts if text)


def with_measured(results: pd.DataFrame) -> pd.DataFrame:
    """Results with the measured mean next to one that an attack expects of itself, or NaN, and with its n.

    The columns are ``measured`` and ``measured_n``; an attack may expect something of some victims only.
    """
    settings = setting_columns(results)
    keys = [(row["attack"], row["metric"], *(repr(row[name]) for name in settings)) for row in records(results)]
    means = dict(zip(keys, zip(results["mean"], results["n"], strict=True), strict=True))
    nothing = (math.nan, math.nan)
    found = [means.get((attack, metric_of(name).predicts, *rest), nothing) for attack, name, *rest in keys]
    return results.assign(**pd.DataFrame(found, index=results.index, columns=["measured", "measured_n"], dtype=float))


def long_table(results: pd.DataFrame) -> pd.DataFrame:
    """One row of texts per cell with columns `HEADER`, without those that have no value or only one setting."""
    settings = described_settings(results, differing(results))
    rows = [
        (
            *(row["attack"], setting, row["metric"], number(row["mean"]) + _against_measured(row)),
            "" if is_single(row) else f"{number(row['low'])} to {number(row['high'])}",
            _people(row["n"], row["seeds"]),
            "" if row["paper"] != row["paper"] else f"{row['paper']:.3f} ({row['source']})",
            "" if row["paper"] != row["paper"] else f"{row['mean'] - row['paper']:+.3f}",
            f"{1000 * row['seconds_per_victim']:.1f}",
        )
        for row, setting in zip(records(results), settings, strict=True)
    ]
    return _without_empty(pd.DataFrame(rows, columns=HEADER))


def is_single(row: Mapping[str, Any]) -> bool:
    """Whether a result is a single value, e.g. the utility of one training, which has no interval."""
    return bool(row["n"] == 1 and row["seeds"] == 1 and row["low"] == row["high"])


def column_of(results: pd.DataFrame) -> str | None:
    """Setting column whose values are the columns of a wide table; None for few cells."""
    column = axis(results) or _most_varied(results, [name for name in words(results) if name != DATA])
    wide = column is not None and results[column].map(str).nunique() > _MOST_COLUMNS
    return None if len(results) < _LONG or wide else column


def wide_table(results: pd.DataFrame, column: str | None) -> pd.DataFrame:
    """One row per line, with a column per value of a setting column, or per metric for None.

    A cell is ``mean [low, high] (paper)``: an interval has both ends, as its mean may be far from the middle.
    """
    key = (column or "metric").removeprefix(SETTING)
    names = ["metric"] if column is None else [f"{key} {value}" for value in results[column]]
    if column is not None:
        names = [f"any {key}" if value is None else name for name, value in zip(names, results[column], strict=True)]
    cells = pd.DataFrame(
        {
            "setting": described_settings(results, differing(results) - {key}),
            "attack": results["attack"],
            "metric": results["metric"],
            "column": results["metric"] if column is None else names,
            "text": [_short(row) for row in records(results)],
            "n": results["n"],
        }
    )
    lines = ["setting", "attack", *(["metric"] if column is not None else [])]
    sizes = cells.groupby(lines, sort=False)["n"].agg(
        lambda n: str(n.min()) if n.nunique() == 1 else f"{n.min()} to {n.max()}"
    )
    wide = cells.pivot_table("text", lines, "column", aggfunc="first").fillna("")
    wide = wide.loc[sizes.index, list(dict.fromkeys(cells["column"]))]  # order of the results
    whole = wide.assign(n=sizes).reset_index().rename_axis(columns=None)
    constant = [name for name in lines if name != "attack" and whole[name].nunique() == 1]
    return whole.drop(columns=constant)


def difference_table(differences: pd.DataFrame) -> pd.DataFrame:
    """One row of texts per difference with columns `DIFFERENCES`, without those that have no value."""
    settings = described_settings(differences, differing(differences))
    rows = [
        (
            *(row["attack"], row["against"], setting, row["metric"], f"{row['mean']:+.3f}"),
            *(f"{row['low']:+.3f} to {row['high']:+.3f}", _ratio(row), _people(row["n"], row["seeds"])),
        )
        for row, setting in zip(records(differences), settings, strict=True)
    ]
    return _without_empty(pd.DataFrame(rows, columns=DIFFERENCES))


def axis(results: pd.DataFrame) -> str | None:
    """Numeric setting column that varies most, for the columns of a table or the axis of a figure."""
    return _most_varied(results, [name for name in setting_columns(results) if _numeric(results[name])])


def words(results: pd.DataFrame) -> list[str]:
    """Setting columns that vary and are not numeric."""
    columns = [name for name in setting_columns(results) if not _numeric(results[name])]
    return [name for name in columns if results[name].map(repr).nunique() > 1]


def described_settings(table: pd.DataFrame, keys: set[str]) -> list[str]:
    """Label of each row's setting with the given keys."""
    return [describe(setting_of(row), keys) for row in records(table[setting_columns(table)])]


def best_first(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Rows of one metric, the attack with the best of all its means first."""
    signed = rows["mean"] * (1 if metric_of(name).lower_is_better else -1)
    best = signed.groupby(rows["attack"]).transform("min")
    return rows.loc[best.sort_values(kind="stable", na_position="last").index]


def attacks_first(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Rows of attacks before those of the other lines, and the number of the former."""
    is_attack = rows["role"].isin(ATTACKS)
    return pd.concat([rows[is_attack], rows[~is_attack]]), int(is_attack.sum())


def _without_empty(table: pd.DataFrame) -> pd.DataFrame:
    optional = ("setting", "paper", "difference", "ratio")
    return table[[name for name, values in table.items() if values.ne("").any() or name not in optional]]


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _numeric(values: pd.Series) -> bool:
    """Whether all values are numbers, or ``inf`` for an infinite budget."""
    given = [value for value in values if value is not None]
    return bool(given) and all(
        value == "inf" or (isinstance(value, int | float) and not isinstance(value, bool)) for value in given
    )


def _most_varied(results: pd.DataFrame, columns: list[str]) -> str | None:
    counts = {name: results[name].dropna().map(str).nunique() for name in columns}
    best = max(columns, key=lambda name: counts[name], default=None)
    return best if best is not None and counts[best] > 1 else None


def _ratio(row: dict[str, Any]) -> str:
    value, low, high = (float(row.get(name, math.nan)) for name in RATIO)
    return "" if math.isnan(value) else f"{number(value)} ({number(low)} to {number(high)})"


def _people(count: int, seeds: int) -> str:
    return str(count) if seeds == 1 else f"{count}, {seeds} seeds"


def _short(row: dict[str, object]) -> str:
    mean, low, high, paper = (float(str(row[name])) for name in ("mean", "low", "high", "paper"))
    if math.isnan(mean):
        return "-"
    interval = "" if is_single(row) else f" [{number(low)}, {number(high)}]"
    return f"{number(mean)}{interval}" + ("" if math.isnan(paper) else f" ({paper:.2f})") + _against_measured(row)


def _against_measured(row: Mapping[str, Any]) -> str:
    """What was measured, and by how much an attack's own expectation of it was off; empty for measured metrics."""
    if metric_of(str(row["metric"])).predicts is None:
        return ""
    measured = float(row.get("measured", math.nan))
    if math.isnan(measured):
        return " (expected, nothing measured)"
    count = float(row.get("measured_n", row["n"]))
    if row["n"] < count:
        return f" (expected of {row['n']} of {count:.0f}; measured {number(measured)} of all)"
    return f" (expected; measured {number(measured)}, off by {row['mean'] - measured:+.3f})"
