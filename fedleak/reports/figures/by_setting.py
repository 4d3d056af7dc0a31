"""Figure of a metric against a numeric setting: lines with intervals, in panels by other settings."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class _XAxis:
    """The numeric axis of a figure: logarithmic for a wide range, ordinal for few values or an infinite one.

    Attributes:
        logarithmic: whether it is logarithmic.
        ordinal: whether its values stand at equal distances, at positions in `labels`.
        labels: different values in ascending order.
    """

    logarithmic: bool
    ordinal: bool
    labels: list[str]

    @classmethod
    def of(cls, values: pd.Series) -> "_XAxis":
        ordered = sorted(values, key=float)
        smallest = float(ordered[0])
        largest = float(ordered[-1])
        is_infinite = largest == float("inf")
        logarithmic = smallest > 0 and not is_infinite and largest >= _LOG * smallest
        few = len({float(value) for value in values}) <= _MOST_TICKS
        labels = list(dict.fromkeys(str(value) for value in ordered))
        return cls(logarithmic=logarithmic, ordinal=not logarithmic and (few or is_infinite), labels=labels)

    def positions(self, values: pd.Series) -> list[float]:
        """Where the values stand on the axis."""
        if self.ordinal:
            return [self.labels.index(str(value)) for value in values]
        return [float(value) for value in values]


def _on_axis(data: FigureData, column: str) -> DrawnFigure:
    rows = _with_a_place(data.rows, column)
    x_axis = _XAxis.of(rows[column])
    # At most two settings become panels, those in words that have most of the axis; the rest are dashes of lines.
    implied = _implied_by_the_attack(rows)
    panels = [name for name in words(rows) if name not in (DATA, *implied) and _fills(rows, name, column)][:2]
    rest = differing(rows) - {name.removeprefix(SETTING) for name in (DATA, column, *implied, *panels)}
    frame = rows.assign(x=x_axis.positions(rows[column]), line=described_settings(rows, rest))
    frame = of_papers(_with_threshold(frame, data.results, column))
    titles, columns = _titles(frame, panels)
    panel_rows = math.ceil(len(titles) / columns)
    figure, grid = styled(
        1.5 + 3.4 * columns,
        1 + 2.6 * panel_rows,
        panel_rows,
        columns,
        sharex=True,
        sharey=True,
    )
    line_settings = list(dict.fromkeys(frame["line"]))
    marks: dict[str, Mark] = {}
    all_axes = list(grid.ravel())
    for axes, title in zip(all_axes, titles, strict=False):
        in_panel = frame[_panel_titles(frame, panels) == title]
        _draw(axes, in_panel, data, line_settings, 0.5 if x_axis.ordinal else 0.0, marks)
        axes.set_title(title, fontsize=10)
        axes.set(xscale="log" if x_axis.logarithmic else "linear")
    for axes in all_axes[len(titles) :]:
        axes.remove()
    key = column.removeprefix(SETTING)
    if x_axis.ordinal:
        all_axes[0].set(xticks=range(len(x_axis.labels)), xticklabels=x_axis.labels)
    figure.supxlabel(key, fontsize=11)
    figure.supylabel(data.metric, fontsize=11)
    handles = _legend_handles(frame, data, line_settings)
    figure.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=3)
    caption = f"{of_data(rows)}{data.metric} against {key}{intervals(frame)}"
    if bool(frame["paper"].notna().any()):
        caption += "; stars are the paper's values"
    with_guessing(figure, data.metric)
    return DrawnFigure(f"{caption}.", figure=figure, marks=marks, name=f"{data.metric}-against-{key}")


def _legend_handles(frame: pd.DataFrame, data: FigureData, line_settings: Sequence[str]) -> list[Line2D]:
    """Lines of the legend: a colour for each attack, then dashes for each further setting."""
    handles = []
    for attack in dict.fromkeys(frame["attack"]):
        colour = data.styles[str(attack)].colour
        handles.append(Line2D([], [], color=colour, marker="o", ms=4, label=str(attack)))
    for position, setting in enumerate(line_settings):
        if setting:
            handles.append(Line2D([], [], color=".3", ls=_DASHES[position % len(_DASHES)], label=setting))
    return handles


def _panel_titles(frame: pd.DataFrame, panels: Sequence[str]) -> pd.Series:
    """Title of each row's panel."""
    if not panels:
        return pd.Series("", index=frame.index)
    titles = []
    for values in zip(*(frame[name] for name in panels), strict=True):
        texts = [f"{name.removeprefix(SETTING)} {value}" for name, value in zip(panels, values, strict=True)]
        titles.append("\n".join(texts))
    return pd.Series(titles, index=frame.index)


def _titles(frame: pd.DataFrame, panels: Sequence[str]) -> tuple[list[str], int]:
    """Titles of the panels in rows, and the number of columns."""
    row_titles = _panel_titles(frame, panels)
    if len(panels) < 2:
        titles = list(dict.fromkeys(row_titles))
        return titles, min(len(titles), _COLUMNS)
    # Of two settings the first goes down and the second across, each in the order of its texts.
    cells = frame.assign(title=row_titles).drop_duplicates(panels)
    cells = cells.sort_values(panels, kind="stable", key=lambda values: values.map(str))
    return cells["title"].tolist(), frame[panels[1]].nunique()


def _draw(
    axes: Axes, rows: pd.DataFrame, data: FigureData, line_settings: Sequence[str], room: float, marks: dict[str, Mark]
) -> None:
    """Draws a line for each attack and further setting; those of an ordinal axis stand next to one another."""
    groups = list(rows.groupby(["attack", "line"], sort=False))
    for position, ((attack, line_setting), results) in enumerate(groups):
        style = data.styles[str(attack)]
        # Lines share the room around a value of the axis.
        x = results["x"] + room * ((position + 0.5) / len(groups) - 0.5)
        results = results.assign(at=x).sort_values("at")
        dashes: Any = style.linestyle
        if len(line_settings) > 1:
            dashes = _DASHES[line_settings.index(line_setting) % len(_DASHES)]
        axes.plot(results["at"], results["mean"], color=style.colour, ls=dashes, lw=1.2)
        label = ", ".join(part for part in (str(attack), str(line_setting)) if part)
        for row in records(results[results["mean"].notna()]):
            ends = errors(pd.DataFrame([row]))
            bars = axes.errorbar(row["at"], row["mean"], ends, color=style.colour, marker="o", ms=4, elinewidth=1)
            text = f"{label}: {row['metric']} {number(row['mean'])}"
            if row["low"] != row["high"]:
                text += f" ({number(row['low'])} to {number(row['high'])})"
            mark(bars.lines[0], marks, f"{text}, n = {row['n']}")
        axes.plot(results["at"], results["paper"], ls="", marker="*", ms=9, mec="k", color=style.colour)
    if "bound" in rows:
        with_bound = rows[rows["bound"].notna()]
        axes.vlines(with_bound["bound"], with_bound["bottom"], with_bound["top"], color=".2", ls="--")


def _with_a_place(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Rows with a value on the axis; a baseline with at most one value does not depend on it and is repeated."""
    axis_values = rows[column].dropna().drop_duplicates()
    counts = rows.groupby("attack", sort=False)[column].transform("nunique")
    is_level = ~rows["role"].isin(ATTACKS) & (counts < 2)
    other_settings = [name for name in setting_columns(rows) if name != column]
    level = rows[is_level].drop(columns=column).drop_duplicates(["attack", *other_settings])
    repeated = level.merge(axis_values, how="cross")
    return pd.concat([rows[~is_level & rows[column].notna()], repeated], ignore_index=True)


def _with_threshold(frame: pd.DataFrame, results: pd.DataFrame, column: str) -> pd.DataFrame:
    """The frame with a vertical line at ``bound`` from ``bottom`` to ``top`` per setting with a threshold."""
    keys = [name for name in setting_columns(frame) if name != column]
    bounds = results[results["metric"] == _THRESHOLDS.get(column)].rename(columns={"mean": "bound"})
    if bounds.empty:
        return frame
    with_bounds = frame.merge(bounds[[*keys, "bound"]].drop_duplicates(keys), how="left", on=keys)
    # One line for a setting, not one for each of its rows.
    with_bounds["bound"] = with_bounds["bound"].mask(with_bounds.duplicated(keys))
    return with_bounds.assign(bottom=with_bounds["low"].min(), top=with_bounds["high"].max())


def _implied_by_the_attack(rows: pd.DataFrame) -> list[str]:
    """Settings that vary, but have one value per attack."""
    counts = rows[setting_columns(rows)].map(repr).groupby(rows["attack"]).nunique().max()
    return [str(name) for name, most in counts.items() if most == 1]


def _fills(rows: pd.DataFrame, name: str, column: str) -> bool:
    """Whether a setting suits panels: few values, each with most of the axis."""
    if not rows[name].notna().all():
        return False
    axis_values = rows.groupby(name)[column].nunique()
    # Each panel has at least half of the axis values that the fullest one has.
    has_most = bool(axis_values.min() * 2 >= axis_values.max())
    return 1 < len(axis_values) <= _MOST_PANELS and has_most
