"""Figure of one metric by attack: best first, baselines below, with the clients or a band, and guessing."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from fedleak.core.metric_table import metric as metric_of
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.paired_means import crossed
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import differing, number, records
from fedleak.reports.figures.figure_data import (
    DrawnFigure,
    FigureData,
    Mark,
    errors,
    intervals,
    legend_right,
    mark,
    of_data,
    of_papers,
    styled,
)
from fedleak.reports.tables import best_first, described_settings

_MARKERS = "osD^vPXh"
"""Marker of each setting."""
_GROUPS = {"": ATTACKS, "baselines": ("baseline",), "bounds, models": ("reference",)}
_GAP = 0.8
"""Room above a group, in rows."""
_MOST_DOTS = 100
"""Clients of an attack of whom each has a dot; of more, a band shows the spread."""
_TAIL = 0.1
"""Share of the clients over whom each end of a band is the mean; at least `FEWEST` clients."""
_MOST_MARKS = 3000
"""Dots of clients above which a page would be slow: then none is drawn."""


def by_attack(data: FigureData, width: float = 7) -> list[DrawnFigure]:
    """A row per attack with a marker and an interval per setting, its clients, and stars for the paper's values.

    The width is in inches.
    """
    rows = data.rows[data.rows["mean"].notna()]
    rows = rows.assign(setting=described_settings(rows, differing(rows)))
    settings = list(dict.fromkeys(rows["setting"]))
    if rows["attack"].nunique() < 2 or len(settings) > len(_MARKERS):
        return []
    groups = {title: best_first(rows[rows["role"].isin(roles)], data.metric) for title, roles in _GROUPS.items()}
    figure, ((axes,),) = styled(width, rows["attack"].nunique() * (0.25 + 0.09 * len(settings)) + 1)
    height = 0.0  # of the next attack, in rows from the top
    ticks: dict[str, float] = {}
    marks: dict[str, Mark] = {}
    clients = _clients(data, len(rows))
    nobody: pd.Series[float] = pd.Series(dtype=float)
    for title, group in groups.items():
        if len(group) and ticks:
            height += _GAP
            axes.axhline(height - (1 + _GAP) / 2, color=".7", lw=0.8)
            axes.annotate(title, (1, height - 0.6), xycoords=axes.get_yaxis_transform(), color=".4", size=8, ha="right")
        for name, results in group.groupby("attack", sort=False):
            ticks[str(name)] = height
            colour = data.styles[str(name)].colour
            for position, setting in enumerate(settings):
                # Settings share 0.7 of the row of an attack, around its middle.
                height_in_row = height + 0.7 * ((position + 0.5) / len(settings) - 0.5)
                in_setting = results[results["setting"] == setting]
                label = _label(name, setting)
                _draw_clients(axes, marks, data, clients.get(label, nobody), height_in_row, colour, label)
                for row, dot in _means(axes, in_setting, height_in_row, _MARKERS[position], colour):
                    text = f"{label}: {data.metric} {number(row['mean'])}"
                    if row["low"] != row["high"]:
                        text += f" ({number(row['low'])} to {number(row['high'])})"
                    mark(dot, marks, f"{text}, n = {row['n']}")
            height += 1
    axes.set(yticks=list(ticks.values()), yticklabels=list(ticks), xlabel=data.metric, ylim=(height - 0.4, -0.6))
    axes.grid(visible=False, axis="y")
    _draw_guessing(axes, data.metric)
    if len(settings) > 1:
        for marker, setting in zip(_MARKERS, settings, strict=False):
            axes.plot([], [], ls="", marker=marker, color=".3", label=setting)
    legend_right(axes)
    caption = f"{of_data(rows)}{data.metric} by attack{intervals(rows)}{_legend_in_words(data, rows, clients)}."
    return [DrawnFigure(caption, figure=figure, marks=marks, name=f"{data.metric}-by-attack")]


def _draw_guessing(axes: Axes, metric: str) -> None:
    """Draws a dotted line at the value of guessing with its name above, if the metric has one."""
    guessing = metric_of(metric).guessing
    if guessing is not None:
        axes.axvline(guessing, color=".5", ls=":", zorder=0)
        axes.annotate(
            "guessing",
            (guessing, 1),
            xycoords=axes.get_xaxis_transform(),
            ha="center",
            va="bottom",
            color=".4",
            size=8,
        )


def _legend_in_words(data: FigureData, rows: pd.DataFrame, clients: dict[str, "pd.Series[float]"]) -> str:
    """End of the caption: what stands for a client, which side is more leakage, and the stars."""
    has_dots = False
    has_bands = False
    for values in clients.values():
        if data.clients and len(values) <= _MOST_DOTS:
            has_dots = True
        elif _band(values) is not None:
            has_bands = True
    parts = []
    if has_dots:
        parts.append("a faint dot is a client")
    if has_bands:
        tail = f"tenth of the clients ({FEWEST} of few)"
        parts.append(f"a faint band goes from the mean of the lowest to that of the highest {tail}")
    entry = metric_of(data.metric)
    if entry.leak:
        side = "left" if entry.lower_is_better else "right"
        parts.append(f"further {side} is more leakage")
    if of_papers(rows)["paper"].notna().any():
        parts.append("stars are the paper's values")
    return "".join(f"; {part}" for part in parts)


def _label(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)


def _clients(data: FigureData, rows_drawn: int) -> dict[str, "pd.Series[float]"]:
    """Mean value of each client over rounds and seeds, by attack and setting; empty if they would be too many."""
    scores = data.scores
    if scores.empty:
        return {}
    scores = scores.assign(setting=described_settings(scores, differing(data.rows)))
    keyed = scores[scores["attack"].isin(data.rows["attack"])].groupby(["attack", "setting"], sort=False)
    by_label: dict[str, pd.Series[float]] = {}
    for attack_and_setting, client_scores in keyed:
        values = crossed(client_scores).mean(axis=1).dropna()
        if len(values) > 1:
            by_label[_label(*attack_and_setting)] = values
    most_clients = max(map(len, by_label.values()), default=0)
    if rows_drawn * min(most_clients, _MOST_DOTS) > _MOST_MARKS:
        return {}
    return by_label


def _band(values: "pd.Series[float]") -> tuple[float, float] | None:
    """Means over the lowest and over the highest tenth of the clients, `FEWEST` or more; None for too few clients.

    A quantile would be the value of one client. So would the band together with the mean over all clients, if there
    were one client between its ends.
    """
    tail = max(FEWEST, math.ceil(_TAIL * len(values)))
    # Both tails and what is between them must be nobody, or `FEWEST` clients or more.
    between = len(values) - 2 * tail
    if between != 0 and between < FEWEST:
        return None
    ordered = values.sort_values()
    return float(ordered.iloc[:tail].mean()), float(ordered.iloc[-tail:].mean())


def _draw_band(axes: Axes, values: "pd.Series[float]", height: float, colour: str) -> None:
    """Draws the spread of the clients of a line."""
    band = _band(values)
    if band is not None:
        axes.hlines(height, *band, color=colour, lw=7, alpha=0.25)


def _draw_clients(
    axes: Axes,
    marks: dict[str, Mark],
    data: FigureData,
    values: "pd.Series[float]",
    height: float,
    colour: str,
    label: str,
) -> None:
    """Draws the clients of a line: a marked dot for each, or their spread if they are many or may not be shown."""
    if not data.clients or len(values) > _MOST_DOTS:
        _draw_band(axes, values, height, colour)
        return
    for person, value in zip(values.index.tolist(), values.tolist(), strict=True):
        (dot,) = axes.plot(value, height, marker="o", ms=5, mew=0, color=colour, alpha=0.35, zorder=1)
        client = data.clients[person]
        mark(dot, marks, f"client {client}, {label}: {data.metric} {number(value)}", client)


def _means(
    axes: Axes, rows: pd.DataFrame, height: float, marker: str, colour: str
) -> Iterator[tuple[dict[str, Any], Artist]]:
    """Draws the results of a line; each with its artist."""
    for row in records(rows):
        ends = errors(pd.DataFrame([row]))
        bars = axes.errorbar(row["mean"], height, xerr=ends, ls="", marker=marker, ms=5, lw=1.5, color=colour)
        yield row, bars.lines[0]
    papers = of_papers(rows)["paper"].dropna()
    axes.plot(papers, [height] * len(papers), ls="", marker="*", ms=10, mec="k", color=colour)
