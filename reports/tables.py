"""Results as tables of text: one row per cell, or wide, with one column for each value of a setting."""

import math

import pandas as pd

from evaluation.labels import describe, differing, number
from evaluation.scores import SETTING, records, setting_columns, setting_of
from reports.run import ATTACKS

HEADER = ("attack", "setting", "metric", "mean", "95% interval", "n", "paper", "difference", "ms per victim")
DIFFERENCES = ("attack", "minus", "setting", "metric", "difference", "95% interval", "n")
DATA = SETTING + "data"
_LONG = 24
"""Cells from which a table is better read wide."""


def long_table(results: pd.DataFrame) -> pd.DataFrame:
    """One row of texts per cell, columns `HEADER`; of the setting, the data and what differs between cells."""
    settings = described_settings(results, differing(results) | {"data"})
    rows = []
    for row, setting in zip(records(results), settings, strict=True):
        paper, without = row["paper"], row["paper"] != row["paper"]
        rows.append(
            (
                *(row["attack"], setting, row["metric"], number(row["mean"])),
                f"{number(row['low'])} to {number(row['high'])}",
                _people(row["n"], row["seeds"]),
                "" if without else f"{paper:.3f} ({row['source']})",
                "" if without else f"{row['mean'] - paper:+.3f}",
                f"{1000 * row['seconds_per_victim']:.1f}",
            )
        )
    return pd.DataFrame(rows, columns=HEADER)


def wide_table(results: pd.DataFrame) -> pd.DataFrame | None:
    """One row per line, with a column for each value of the setting that varies most; None where cells are few.

    A cell reads ``mean±half the interval (paper)``.
    """
    column = axis(results) or _most_varied(results, [name for name in words(results) if name != DATA])
    if column is None or len(results) < _LONG:
        return None
    key = column.removeprefix(SETTING)
    cells = pd.DataFrame(
        {
            "setting": described_settings(results, differing(results) - {key}),
            "attack": results["attack"],
            "metric": results["metric"],
            "column": [f"any {key}" if value is None else f"{key} {value}" for value in results[column]],
            "text": [_short(row) for row in records(results)],
            "n": results["n"],
        }
    )
    lines = ["setting", "attack", *(["metric"] if results["metric"].nunique() > 1 else [])]
    names = ["setting", "attack", "metric"]
    sizes = cells.groupby(names, sort=False)["n"].agg(
        lambda n: str(n.min()) if n.nunique() == 1 else f"{n.min()} to {n.max()}"
    )
    wide = cells.pivot_table("text", names, "column", aggfunc="first").fillna("")
    wide = wide.loc[sizes.index, list(dict.fromkeys(cells["column"]))]  # in the order of the results
    return wide.assign(n=sizes).reset_index()[[*lines, *wide.columns, "n"]].rename_axis(columns=None)


def difference_table(differences: pd.DataFrame) -> pd.DataFrame:
    """One row of texts per difference, columns `DIFFERENCES`."""
    settings = described_settings(differences, differing(differences) | {"data"})
    rows = [
        (
            *(row["attack"], row["against"], setting, row["metric"], f"{row['mean']:+.3f}"),
            *(f"{row['low']:+.3f} to {row['high']:+.3f}", _people(row["n"], row["seeds"])),
        )
        for row, setting in zip(records(differences), settings, strict=True)
    ]
    return pd.DataFrame(rows, columns=DIFFERENCES)


def attacks_then_baselines(results: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Attacks, and apart from them what they stand next to: baselines, bounds and models."""
    is_attack = results["role"].isin(ATTACKS)
    return results[is_attack], results[~is_attack]


def text_table(results: pd.DataFrame) -> str:
    """The table for a terminal: wide where it is long."""
    wide = wide_table(results)
    if wide is not None:
        return "\n".join(aligned(wide))
    attacks, baselines = attacks_then_baselines(results)
    lines = aligned(long_table(pd.concat([attacks, baselines])))
    if len(baselines):
        lines.insert(len(lines) - len(baselines), "baselines, bounds and models:")
    return "\n".join(lines)


def axis(results: pd.DataFrame) -> str | None:
    """The column of numbers among the settings that varies most, for columns of a table or a figure's axis."""
    return _most_varied(results, [name for name in setting_columns(results) if _numeric(results[name])])


def words(results: pd.DataFrame) -> list[str]:
    """Columns of settings that vary and are no numbers."""
    columns = [name for name in setting_columns(results) if not _numeric(results[name])]
    return [name for name in columns if results[name].map(repr).nunique() > 1]


def described_settings(table: pd.DataFrame, keys: set[str]) -> list[str]:
    """Some keys of each row's setting in words."""
    return [describe(setting_of(row), keys) for row in records(table[setting_columns(table)])]


def _numeric(values: pd.Series) -> bool:
    """Whether all are numbers; an infinite budget is written ``inf``."""
    given = [value for value in values if value is not None]
    return bool(given) and all(value == "inf" or (_is_number(value)) for value in given)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _most_varied(results: pd.DataFrame, columns: list[str]) -> str | None:
    counts = {name: results[name].dropna().map(str).nunique() for name in columns}
    best = max(columns, key=lambda name: counts[name], default=None)
    return best if best is not None and counts[best] > 1 else None


def _people(count: int, seeds: int) -> str:
    return str(count) if seeds == 1 else f"{count}, {seeds} seeds"


def _short(row: dict[str, object]) -> str:
    mean, low, high, paper = (float(str(row[name])) for name in ("mean", "low", "high", "paper"))
    if math.isnan(mean):
        return "-"
    return f"{number(mean)}±{number((high - low) / 2)}" + ("" if math.isnan(paper) else f" ({paper:.2f})")


def aligned(table: pd.DataFrame) -> list[str]:
    """Lines of text with columns under one another and a rule below the header."""
    widths = {str(name): max(len(str(name)), *map(len, table[name])) for name in table} if len(table) else {}
    left = {name: f"{{:<{width}}}".format for name, width in widths.items()}
    text = table.to_string(index=False, justify="left", formatters=left)
    lines = [line.rstrip() for line in text.splitlines()]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]
