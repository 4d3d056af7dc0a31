"""Figure of one metric by attack: the best attack first, baselines below, with the value of guessing."""

import pandas as pd
from matplotlib.axes import Axes

from evaluation.scores import differing
from protocol.metric_table import metric as metric_of
from reports.figures.figure_data import DrawnFigure, FigureData, errors, legend_right, of_data, of_papers, styled
from reports.run import ATTACKS
from reports.tables import best_first, described_settings

_MARKERS = "osD^vPXh"
"""Marker of each setting."""
_GROUPS = {"": ATTACKS, "baselines": ("baseline",), "bounds, models": ("reference",)}
_GAP = 0.8
"""Room above a group, in rows."""


def by_attack(data: FigureData) -> list[DrawnFigure]:
    """A row per attack with a marker and an interval per setting, and stars for the paper's values."""
    rows = data.rows[data.rows["mean"].notna()]
    rows = rows.assign(setting=described_settings(rows, differing(rows)))
    settings = list(dict.fromkeys(rows["setting"]))
    if rows["attack"].nunique() < 2 or len(settings) > len(_MARKERS):
        return []
    groups = {title: best_first(rows[rows["role"].isin(roles)], data.metric) for title, roles in _GROUPS.items()}
    figure, ((axes,),) = styled(7, rows["attack"].nunique() * (0.25 + 0.09 * len(settings)) + 1)
    place, ticks = 0.0, dict[str, float]()
    for title, group in groups.items():
        if len(group) and ticks:
            place += _GAP
            axes.axhline(place - (1 + _GAP) / 2, color=".7", lw=0.8)
            axes.annotate(title, (1, place - 0.6), xycoords=axes.get_yaxis_transform(), color=".4", size=8, ha="right")
        for name, own in group.groupby("attack", sort=False):
            ticks[str(name)] = place
            for number, setting in enumerate(settings):
                shift = 0.7 * ((number + 0.5) / len(settings) - 0.5)
                part = own[own["setting"] == setting]
                _mark(axes, part, place + shift, _MARKERS[number], data.styles[str(name)].colour)
            place += 1
    axes.set(yticks=list(ticks.values()), yticklabels=list(ticks), xlabel=data.metric, ylim=(place - 0.4, -0.6))
    axes.grid(visible=False, axis="y")
    guessing = metric_of(data.metric).guessing
    if guessing is not None:
        axes.axvline(guessing, color=".5", ls=":", zorder=0)
        place_above = {"xycoords": axes.get_xaxis_transform(), "ha": "center", "va": "bottom"}
        axes.annotate("guessing", (guessing, 1), **place_above, color=".4", size=8)
    for number, setting in enumerate(settings if len(settings) > 1 else []):
        axes.plot([], [], ls="", marker=_MARKERS[number], color=".3", label=setting)
    legend_right(axes)
    stars = "; stars are the paper's values" if of_papers(rows)["paper"].notna().any() else ""
    entry = metric_of(data.metric)
    side = f"; further {'left' if entry.lower_is_better else 'right'} is more leakage" if entry.leak else ""
    caption = f"{of_data(rows)}{data.metric} by attack with 95% intervals{side}{stars}."
    return [DrawnFigure(caption, figure=figure, name=f"{data.metric}-by-attack")]


def _mark(axes: Axes, rows: pd.DataFrame, place: float, marker: str, colour: str) -> None:
    axes.errorbar(
        rows["mean"], [place] * len(rows), xerr=errors(rows), ls="", marker=marker, ms=5, lw=1.5, color=colour
    )
    papers = of_papers(rows)["paper"].dropna()
    axes.plot(papers, [place] * len(papers), ls="", marker="*", ms=10, mec="k", color=colour)
