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
_PAGE = 112
"""Characters in a row of a page."""
_LONGEST = 40
"""Characters in a cell that is not broken."""
_MOST_ROWS = 40
"""Rows above which a page shows a table on demand only."""
_NUMBER = re.compile(r"([+-]?[\d.]+|-?inf|-)(\D.*)?")


@dataclass(frozen=True)
class ReportTable:
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
        # A column is as wide as its longest cell or word of its header, which breaks at spaces, plus a gap of 2.
        widths = []
        for name, texts in self.texts.items():
            header_words = str(name).replace("_", " ").replace("-", " ").split()
            widths.append(min(max(map(len, [*header_words, *texts])), _LONGEST) + 2)
        # Columns of texts before the first number stand in each part; the others fill parts from left to right.
        repeated = len(widths)
        if True in self.numeric:
            repeated = self.numeric.index(True)
        parts: list[list[int]] = [[]]
        for column in range(repeated, len(widths)):
            used = sum(widths[:repeated]) + sum(widths[position] for position in parts[-1])
            if parts[-1] and used + widths[column] > _PAGE:
                parts.append([])
            parts[-1].append(column)
        return [[*range(repeated), *part] for part in parts]


def is_numeric(texts: Sequence[str]) -> bool:
    """Whether all texts of a column start with a number, or are empty."""
    return any(texts) and all(_NUMBER.fullmatch(text) for text in texts if text)


def with_measured(results: pd.DataFrame) -> pd.DataFrame:
    """Results with the measured mean next to one that an attack expects of itself, or NaN, and with its n.

    The columns are ``measured`` and ``measured_n``; an attack may expect something of some victims only.
    """
    settings = setting_columns(results)
    means: dict[tuple[Any, ...], tuple[float, float]] = {}
    predicted: list[tuple[Any, ...]] = []
    for row in records(results):
        setting = [repr(row[name]) for name in settings]
        means[row["attack"], row["metric"], *setting] = (row["mean"], row["n"])
        # A metric that predicts another one is compared with it, of the same attack and in the same setting.
        predicted.append((row["attack"], metric_of(row["metric"]).predicts, *setting))
    measured = [means.get(cell, (math.nan, math.nan)) for cell in predicted]
    columns = pd.DataFrame(measured, index=results.index, columns=["measured", "measured_n"], dtype=float)
    return results.assign(measured=columns["measured"], measured_n=columns["measured_n"])


def long_table(results: pd.DataFrame) -> pd.DataFrame:
    """One row of texts per cell with columns `HEADER`, without those that have no value or only one setting."""
    settings = described_settings(results, differing(results))
    rows = []
    for row, setting in zip(records(results), settings, strict=True):
        interval = ""
        if not is_single(row):
            interval = f"{number(row['low'])} to {number(row['high'])}"
        paper = ""
        difference = ""
        if not math.isnan(row["paper"]):
            paper = f"{row['paper']:.3f} ({row['source']})"
            difference = f"{row['mean'] - row['paper']:+.3f}"
        cells = (
            row["attack"],
            setting,
            row["metric"],
            number(row["mean"]) + _against_measured(row),
            interval,
            _people(row["n"], row["seeds"]),
            paper,
            difference,
            f"{1000 * row['seconds_per_victim']:.1f}",
        )
        rows.append(cells)
    return _without_empty(pd.DataFrame(rows, columns=HEADER))


def is_single(row: Mapping[str, Any]) -> bool:
    """Whether a result is a single value, e.g. the utility of one training, which has no interval."""
    return bool(row["n"] == 1 and row["seeds"] == 1 and row["low"] == row["high"])


def column_of(results: pd.DataFrame) -> str | None:
    """Setting column whose values are the columns of a wide table; None for few cells."""
    if len(results) < _LONG:
        return None
    column = axis(results) or _most_varied(results, [name for name in words(results) if name != DATA])
    if column is not None and results[column].map(str).nunique() > _MOST_COLUMNS:
        return None
    return column


def wide_table(results: pd.DataFrame, column: str | None) -> pd.DataFrame:
    """One row per line, with a column per value of a setting column, or per metric for None.

    A cell is ``mean [low, high] (paper)``: an interval has both ends, as its mean may be far from the middle.
    """
    if column is None:
        key = "metric"
        columns = results["metric"].tolist()
        line_names = ["setting", "attack"]
    else:
        key = column.removeprefix(SETTING)
        columns = [f"any {key}" if value is None else f"{key} {value}" for value in results[column]]
        line_names = ["setting", "attack", "metric"]
    cells = pd.DataFrame(
        {
            "setting": described_settings(results, differing(results) - {key}),
            "attack": results["attack"],
            "metric": results["metric"],
            "column": columns,
            "text": [_short(row) for row in records(results)],
            "n": results["n"],
        }
    )
    sizes = cells.groupby(line_names, sort=False)["n"].agg(_range_of_counts)
    wide = cells.pivot_table("text", line_names, "column", aggfunc="first").fillna("")
    # A pivot sorts rows and columns; both get the order of the results again.
    wide = wide.loc[sizes.index, list(dict.fromkeys(cells["column"]))]
    table = wide.assign(n=sizes).reset_index().rename_axis(columns=None)
    constant = [name for name in line_names if name != "attack" and table[name].nunique() == 1]
    return table.drop(columns=constant)


def _range_of_counts(counts: pd.Series) -> str:
    """The number of clients of all cells of a line, or the smallest and the largest."""
    if counts.nunique() == 1:
        return str(counts.min())
    return f"{counts.min()} to {counts.max()}"


def difference_table(differences: pd.DataFrame) -> pd.DataFrame:
    """One row of texts per difference with columns `DIFFERENCES`, without those that have no value."""
    settings = described_settings(differences, differing(differences))
    rows = [
        (
            row["attack"],
            row["against"],
            setting,
            row["metric"],
            f"{row['mean']:+.3f}",
            f"{row['low']:+.3f} to {row['high']:+.3f}",
            _ratio(row),
            _people(row["n"], row["seeds"]),
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
    # With the sign turned where higher is better, the smallest mean is the best of each metric.
    signed = rows["mean"] * (1 if metric_of(name).lower_is_better else -1)
    best = signed.groupby(rows["attack"]).transform("min")
    return rows.loc[best.sort_values(kind="stable", na_position="last").index]


def attacks_first(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Rows of attacks before those of the other lines, and the number of the former."""
    is_attack = rows["role"].isin(ATTACKS)
    return pd.concat([rows[is_attack], rows[~is_attack]]), int(is_attack.sum())


def _without_empty(table: pd.DataFrame) -> pd.DataFrame:
    """The table without optional columns that have no text."""
    optional = ("setting", "paper", "difference", "ratio")
    filled = [name for name, values in table.items() if values.ne("").any() or name not in optional]
    return table[filled]


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _numeric(values: pd.Series) -> bool:
    """Whether all values are numbers, or ``inf`` for an infinite budget."""
    not_none = [value for value in values if value is not None]

    def is_number(value: Any) -> bool:
        return value == "inf" or (isinstance(value, int | float) and not isinstance(value, bool))

    return bool(not_none) and all(map(is_number, not_none))


def _most_varied(results: pd.DataFrame, columns: list[str]) -> str | None:
    """The first column with the most different values; None if none has two."""
    counts = {name: results[name].dropna().map(str).nunique() for name in columns}
    most_varied = max(columns, key=lambda name: counts[name], default=None)
    if most_varied is None or counts[most_varied] < 2:
        return None
    return most_varied


def _ratio(row: dict[str, Any]) -> str:
    value, low, high = (float(row.get(name, math.nan)) for name in RATIO)
    if math.isnan(value):
        return ""
    return f"{number(value)} ({number(low)} to {number(high)})"


def _people(count: int, seeds: int) -> str:
    if seeds == 1:
        return str(count)
    return f"{count}, {seeds} seeds"


def _short(row: dict[str, object]) -> str:
    """Cell of a wide table: ``mean [low, high] (paper)``."""
    mean, low, high, paper = (float(str(row[name])) for name in ("mean", "low", "high", "paper"))
    if math.isnan(mean):
        return "-"
    cell = number(mean)
    if not is_single(row):
        cell += f" [{number(low)}, {number(high)}]"
    if not math.isnan(paper):
        cell += f" ({paper:.2f})"
    return cell + _against_measured(row)


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
