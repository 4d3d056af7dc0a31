"""Figure of a metric against a numeric setting: lines with intervals, in panels by other settings."""

import dataclasses
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedleak.evaluation.result_names import ATTACKS, DATA
from fedleak.evaluation.scores import SETTING, differing, number, records, setting_columns
from fedleak.reports.figures.below_bounds import bounded
from fedleak.reports.figures.figure_data import (
    DrawnFigure,
    FigureData,
    Mark,
    errors,
    intervals,
    mark,
    of_data,
    of_papers,
    styled,
    with_guessing,
)
from fedleak.reports.tables import axis, described_settings, words

_MOST_PANELS = 5
"""Largest number of values of a setting for panels."""
_LOG = 30
"""Smallest ratio of the largest to the smallest number for a logarithmic axis."""
_MOST_TICKS = 8
"""Largest number of values for an ordinal axis."""
_COLUMNS = 3
"""Panels of one setting in a row."""
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))
"""Line style of each further setting."""
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
    implied = _implied_by_the_attack(rows)
    panels = [name for name in words(rows) if name not in (DATA, *implied) and _fills(rows, name, column)][:2]
    rest = differing(rows) - {name.removeprefix(SETTING) for name in (DATA, column, *implied, *panels)}
    places = [order.index(str(value)) if ordinal else float(value) for value in rows[column]]
    frame = rows.assign(x=places, line=described_settings(rows, rest))
    frame = of_papers(_with_threshold(frame, data.results, column))
    titles, wide = _titles(frame, panels)
    figure, grid = styled(
        *(1.5 + 3.4 * wide, 1 + 2.6 * -(-len(titles) // wide), -(-len(titles) // wide), wide), sharex=True, sharey=True
    )
    lines, marks = list(dict.fromkeys(frame["line"])), dict[str, Mark]()
    every = list(grid.ravel())
    for axes, title in zip(every, titles, strict=False):
        shown = frame[_panel_titles(frame, panels) == title]
        _draw(axes, shown, data, lines, 0.5 if ordinal else 0.0, marks)
        axes.set_title(title, fontsize=10)
        axes.set(xscale="log" if logarithmic else "linear")
    for axes in every[len(titles) :]:
        axes.remove()
    key = column.removeprefix(SETTING)
    if ordinal:
        every[0].set(xticks=range(len(order)), xticklabels=order)
    figure.supxlabel(key, fontsize=11)
    figure.supylabel(data.metric, fontsize=11)
    handles = [
        *(Line2D([], [], color=data.styles[name].colour, marker="o", ms=4, label=name) for name in _names(frame)),
        *(Line2D([], [], color=".3", ls=_DASHES[lines.index(one) % len(_DASHES)], label=one) for one in lines if one),
    ]
    figure.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=3)
    stars = "; stars are the paper's values" if bool(frame["paper"].notna().any()) else ""
    caption = f"{of_data(rows)}{data.metric} against {key}{intervals(frame)}{stars}."
    name = f"{data.metric}-against-{key}"
    return DrawnFigure(caption, figure=with_guessing(figure, data.metric), marks=marks, name=name)


def _names(frame: pd.DataFrame) -> list[str]:
    return [str(name) for name in dict.fromkeys(frame["attack"])]


def _panel_titles(frame: pd.DataFrame, panels: Sequence[str]) -> pd.Series:
    """Title of each row's panel."""
    texts = [[f"{name.removeprefix(SETTING)} {value}" for value in frame[name]] for name in panels]
    return pd.Series(["\n".join(parts) for parts in zip(*texts, strict=True)] if panels else "", index=frame.index)


def _titles(frame: pd.DataFrame, panels: Sequence[str]) -> tuple[list[str], int]:
    """Titles of the panels in rows, and the number of columns."""
    keys = _panel_titles(frame, panels)
    if len(panels) < 2:
        titles = list(dict.fromkeys(keys))
        return titles, min(len(titles), _COLUMNS) if len(titles) > _COLUMNS else len(titles)
    known = frame.assign(key=keys).drop_duplicates(panels).sort_values(panels, kind="stable", key=lambda v: v.map(str))
    return known["key"].tolist(), frame[panels[1]].nunique()


def _draw(
    axes: Axes, rows: pd.DataFrame, data: FigureData, lines: Sequence[str], room: float, marks: dict[str, Mark]
) -> None:
    """Draws a line for each attack and further setting; those of an ordinal axis stand next to one another."""
    groups = list(rows.groupby(["attack", "line"], sort=False))
    for position, ((attack, line), own) in enumerate(groups):
        style = data.styles[str(attack)]
        x = own["x"] + room * ((position + 0.5) / len(groups) - 0.5)
        own = own.assign(at=x).sort_values("at")
        dashes = _DASHES[lines.index(line) % len(_DASHES)] if len(lines) > 1 else style.linestyle
        axes.plot(own["at"], own["mean"], color=style.colour, ls=dashes, lw=1.2)
        for row in records(own[own["mean"].notna()]):
            ends = errors(pd.DataFrame([row]))
            bars = axes.errorbar(row["at"], row["mean"], ends, color=style.colour, marker="o", ms=4, elinewidth=1)
            span = "" if row["low"] == row["high"] else f" ({number(row['low'])} to {number(row['high'])})"
            label = ", ".join(part for part in (str(attack), str(line)) if part)
            mark(bars.lines[0], marks, f"{label}: {row['metric']} {number(row['mean'])}{span}, n = {row['n']}")
        axes.plot(own["at"], own["paper"], ls="", marker="*", ms=9, mec="k", color=style.colour)
    if "bound" in rows:
        known = rows[rows["bound"].notna()]
        axes.vlines(known["bound"], known["bottom"], known["top"], color=".2", ls="--")


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
