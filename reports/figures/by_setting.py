"""Figure of a metric against a numeric setting: lines with intervals, in panels by other settings."""

import dataclasses

import pandas as pd
import seaborn.objects as so

from evaluation.scores import SETTING, differing, setting_columns
from reports.figures.below_bounds import bounded
from reports.figures.figure_data import DrawnFigure, FigureData, drawn, of_data, of_papers, with_guessing
from reports.run import ATTACKS
from reports.tables import DATA, axis, described_settings, words

_MOST_PANELS = 5
"""Largest number of values of a setting for panels."""
_LOG = 30
"""Smallest ratio of the largest to the smallest number for a logarithmic axis."""
_MOST_TICKS = 8
"""Largest number of values for an ordinal axis."""
_THRESHOLDS = {SETTING + "interactions": "bound-of-all"}
"""Metric that is a position on an axis, by axis: the theorem's number of interactions."""


def by_setting(data: FigureData) -> list[DrawnFigure]:
    """The metric against the numeric setting that varies most, with stars for the paper's values."""
    column = axis(data.rows)
    if column is None or bounded(data.rows):
        return []
    # Rows without a value on this axis may have another axis.
    elsewhere = data.rows[data.rows[column].isna() & data.rows["role"].isin(ATTACKS)]
    return [_on_axis(data, column), *by_setting(dataclasses.replace(data, rows=elsewhere))]


def _on_axis(data: FigureData, column: str) -> DrawnFigure:
    rows = _with_a_place(data.rows, column)
    numbers = sorted({float(value) for value in rows[column]})
    logarithmic = numbers[0] > 0 and numbers[-1] != float("inf") and numbers[-1] >= _LOG * numbers[0]
    ordinal = not logarithmic and (len(numbers) <= _MOST_TICKS or numbers[-1] == float("inf"))
    order = list(dict.fromkeys(str(value) for value in sorted(rows[column], key=float)))
    frame = rows.assign(x=rows[column].map(str if ordinal else float))
    implied = _implied_by_the_attack(rows)
    panels = [name for name in words(rows) if name not in (DATA, *implied) and _fills(rows, name, column)][:2]
    rest = differing(rows) - {name.removeprefix(SETTING) for name in (DATA, column, *implied, *panels)}
    frame = _with_threshold(frame.assign(line=described_settings(rows, rest)), data.results, column)
    frame = of_papers(frame)
    plot = so.Plot(frame, x="x", y="mean", color="attack", linestyle="line" if rest else None)
    plot = plot.add(so.Line(marker="o", pointsize=4)).add(so.Range(linewidth=1), ymin="low", ymax="high", legend=False)
    papers = bool(frame["paper"].notna().any())
    if papers:
        plot = plot.add(so.Dot(marker="*", pointsize=9, edgecolor="k"), y="paper", legend=False)
    if "bound" in frame:
        dashed = so.Range(color=".2", linestyle="--")
        plot = plot.add(dashed, x="bound", ymin="bottom", ymax="top", color=None, linestyle=None, legend=False)
    down, along = (panels[0], panels[1]) if len(panels) == 2 else (None, panels[0] if panels else None)
    wrap = 3 if down is None and along is not None and rows[along].nunique() > 3 else None
    plot = plot.facet(col=along, row=down, wrap=wrap)
    plot = plot.scale(x=so.Nominal(order=order) if ordinal else so.Continuous(trans="log" if logarithmic else None))
    key = column.removeprefix(SETTING)
    titles = {place: name.removeprefix(SETTING) for place, name in (("col", along), ("row", down)) if name}
    plot = plot.label(x=key, y=data.metric, color="", linestyle="", **titles)
    wide = 1 if along is None else wrap or rows[along].nunique()
    high = 1 if down is None else rows[down].nunique()
    high = -(-rows[along].nunique() // wrap) if wrap else high
    stars = "; stars are the paper's values" if papers else ""
    caption = f"{of_data(rows)}{data.metric} against {key} with 95% intervals{stars}."
    figure = with_guessing(drawn(plot, 1.5 + 3.4 * wide, 1 + 2.6 * high, data.colours), data.metric)
    for axes in figure.axes:
        axes.set_title(axes.get_title().replace(" | ", "\n"), fontsize=10)
    return DrawnFigure(caption, figure=figure, name=f"{data.metric}-against-{key}")


def _with_a_place(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Rows with a value on the axis; a baseline with at most one value does not depend on it and is repeated."""
    places = rows[column].dropna().drop_duplicates()
    counts = rows.groupby("attack", sort=False)[column].transform("nunique")
    level = ~rows["role"].isin(ATTACKS) & (counts < 2)
    others = [name for name in setting_columns(rows) if name != column]
    spread = rows[level].drop(columns=column).drop_duplicates(["attack", *others])
    return pd.concat([rows[~level & rows[column].notna()], spread.merge(places, how="cross")], ignore_index=True)


def _with_threshold(frame: pd.DataFrame, results: pd.DataFrame, column: str) -> pd.DataFrame:
    """The frame with a vertical line at ``bound`` from ``bottom`` to ``top`` per setting with a threshold."""
    keys = [name for name in setting_columns(frame) if name != column]
    bounds = results[results["metric"] == _THRESHOLDS.get(column)].rename(columns={"mean": "bound"})
    if bounds.empty:
        return frame
    found = frame.merge(bounds[[*keys, "bound"]].drop_duplicates(keys), how="left", on=keys)
    found["bound"] = found["bound"].mask(found.duplicated(keys))
    return found.assign(bottom=found["low"].min(), top=found["high"].max())


def _implied_by_the_attack(rows: pd.DataFrame) -> list[str]:
    """Settings that vary, but have one value per attack."""
    counts = rows[setting_columns(rows)].map(repr).groupby(rows["attack"]).nunique().max()
    return [str(name) for name, most in counts.items() if most == 1]


def _fills(rows: pd.DataFrame, name: str, column: str) -> bool:
    """Whether a setting suits panels: few values, each with most of the axis."""
    places = rows[rows[name].notna()].groupby(name)[column].nunique()
    return 1 < len(places) <= _MOST_PANELS and bool(rows[name].notna().all() and places.min() * 2 >= places.max())
