"""Tables of a report: one row per cell, or wide with one column per value of a setting."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from evaluation.scores import SETTING, describe, differing, number, records, setting_columns, setting_of
from evaluation.summary import RATIO
from reports.aligned import aligned
from reports.run import ATTACKS

HEADER = ("attack", "setting", "metric", "mean", "95% interval", "n", "paper", "difference", "ms per victim")
DIFFERENCES = ("attack", "minus", "setting", "metric", "difference", "95% interval", "ratio", "n")
DATA = SETTING + "data"
_LONG = 24
"""Smallest number of cells for a wide table."""


def long_table(results: pd.DataFrame) -> pd.DataFrame:
    """One row of texts per cell with columns `HEADER`, without those of the paper where it has no value.

    The setting lists the data and the keys that differ between cells.
    """
    settings = described_settings(results, differing(results) | {"data"})
    rows = [
        (
            *(row["attack"], setting, row["metric"], number(row["mean"])),
            *(f"{number(row['low'])} to {number(row['high'])}", _people(row["n"], row["seeds"])),
            "" if row["paper"] != row["paper"] else f"{row['paper']:.3f} ({row['source']})",
            "" if row["paper"] != row["paper"] else f"{row['mean'] - row['paper']:+.3f}",
            f"{1000 * row['seconds_per_victim']:.1f}",
        )
        for row, setting in zip(records(results), settings, strict=True)
    ]
    made = pd.DataFrame(rows, columns=HEADER)
    return made if (made["paper"] != "").any() else made.drop(columns=["paper", "difference"])


def wide_table(results: pd.DataFrame) -> pd.DataFrame | None:
    """One row per line, with a column per value of the setting that varies most; None for few cells.

    Where no setting varies, the columns are the metrics. A cell is ``mean±half of the interval (paper)``.
    """
    column = axis(results) or _most_varied(results, [name for name in words(results) if name != DATA])
    if len(results) < _LONG or (column is None and results["metric"].nunique() == 1):
        return None
    key = (column or "metric").removeprefix(SETTING)
    cells = pd.DataFrame(
        {
            "setting": described_settings(results, differing(results) - {key}),
            "attack": results["attack"],
            "metric": results["metric"],
            "column": results["metric"]
            if column is None
            else [f"any {key}" if value is None else f"{key} {value}" for value in results[column]],
            "text": [_short(row) for row in records(results)],
            "n": results["n"],
        }
    )
    names = ["setting", "attack", *(["metric"] if column is not None else [])]
    lines = names if results["metric"].nunique() > 1 else ["setting", "attack"]
    sizes = cells.groupby(names, sort=False)["n"].agg(
        lambda n: str(n.min()) if n.nunique() == 1 else f"{n.min()} to {n.max()}"
    )
    wide = cells.pivot_table("text", names, "column", aggfunc="first").fillna("")
    wide = wide.loc[sizes.index, list(dict.fromkeys(cells["column"]))]  # order of the results
    return wide.assign(n=sizes).reset_index()[[*lines, *wide.columns, "n"]].rename_axis(columns=None)


def difference_table(differences: pd.DataFrame) -> pd.DataFrame:
    """One row of texts per difference with columns `DIFFERENCES`."""
    settings = described_settings(differences, differing(differences) | {"data"})
    rows = [
        (
            *(row["attack"], row["against"], setting, row["metric"], f"{row['mean']:+.3f}"),
            *(f"{row['low']:+.3f} to {row['high']:+.3f}", _ratio(row), _people(row["n"], row["seeds"])),
        )
        for row, setting in zip(records(differences), settings, strict=True)
    ]
    return pd.DataFrame(rows, columns=DIFFERENCES)


def detail_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows of an attack's own table as texts, without empty columns."""
    names = [
        name for name in dict.fromkeys(key for row in rows for key in row) if any(_text(r.get(name)) for r in rows)
    ]
    return pd.DataFrame([[_text(row.get(name)) for name in names] for row in rows], columns=names)


def text_table(results: pd.DataFrame) -> str:
    """Table for a terminal, wide if there are many cells."""
    wide = wide_table(results)
    if wide is not None:
        return "\n".join(aligned([*wide], wide.to_numpy().tolist()))
    is_attack = results["role"].isin(ATTACKS)
    table = long_table(pd.concat([results[is_attack], results[~is_attack]]))
    lines = aligned([*table], table.to_numpy().tolist())
    if not is_attack.all():
        lines.insert(len(lines) - int((~is_attack).sum()), "baselines, bounds and models:")
    return "\n".join(lines)


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


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _ratio(row: dict[str, Any]) -> str:
    value, low, high = (float(row.get(name, math.nan)) for name in RATIO)
    return "" if math.isnan(value) else f"{number(value)} ({number(low)} to {number(high)})"


def _people(count: int, seeds: int) -> str:
    return str(count) if seeds == 1 else f"{count}, {seeds} seeds"


def _short(row: dict[str, object]) -> str:
    mean, low, high, paper = (float(str(row[name])) for name in ("mean", "low", "high", "paper"))
    if math.isnan(mean):
        return "-"
    return f"{number(mean)}±{number((high - low) / 2)}" + ("" if math.isnan(paper) else f" ({paper:.2f})")
