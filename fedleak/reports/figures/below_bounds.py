"""Figure of attacks against a privacy budget, below the bound of every attack."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from fedleak.evaluation.result_names import BOUNDS, DATA
from fedleak.evaluation.scores import SETTING
from fedleak.reports.figures.figure_data import (
    DrawnFigure,
    FigureData,
    errors,
    of_data,
    of_papers,
    styled,
    with_guessing,
)
from fedleak.reports.figures.line_styles import LineStyle
from fedleak.reports.tables import described_settings, words

_BUDGET = SETTING + "epsilon"
_BOUND = BOUNDS["uniform"]
"""Label of the bound for attacks that know nothing else."""
_GENIE = "genie"
"""Label of `fedleak.tables.after.genie.Genie`."""
_MOST_PANELS = 8
"""Largest number of panels: the first settings have one."""


def bounded(rows: pd.DataFrame) -> bool:
    """Whether rows of one metric have a bound at several budgets."""
    bound = rows[rows["attack"] == _BOUND]
    return _BUDGET in rows and bound[_BUDGET].map(str).nunique() > 1


def below_bounds(data: FigureData) -> list[DrawnFigure]:
    """The metric against epsilon, a panel per other setting: attacks, baselines, genie, and the bound."""
    if not bounded(data.rows):
        return []
    rows = data.rows[data.rows[_BUDGET].notna()]
    # The axis is ordinal: budgets go over orders of magnitude, and one may be infinite.
    budgets = [str(value) for value in sorted(rows[_BUDGET].drop_duplicates(), key=float)]
    titles = described_settings(rows, {name.removeprefix(SETTING) for name in words(rows) if name != DATA})
    frame = rows.assign(tick=[budgets.index(str(value)) for value in rows[_BUDGET]], panel=titles)
    panels = list(dict.fromkeys(titles))[:_MOST_PANELS]
    figure, (panel_axes,) = styled(2 + 3.2 * len(panels), 3.4, columns=len(panels), sharey=True)
    # One legend for all panels, with each label once.
    artists: dict[str, Artist] = {}
    for axes, panel in zip(panel_axes, panels, strict=True):
        _draw(axes, frame[frame["panel"] == panel].sort_values("tick"), data.styles)
        axes.set(title=panel, xlabel="epsilon", xticks=range(len(budgets)), xticklabels=budgets)
        handles, labels = axes.get_legend_handles_labels()
        artists |= dict(zip(labels, handles, strict=True))
    panel_axes[0].set(ylabel=data.metric)
    with_guessing(figure, data.metric)
    figure.legend([*artists.values()], [*artists], loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    caption = (
        f"{of_data(rows)}{data.metric} against epsilon with 95% intervals; stars are the paper's values. No attack "
        "can be in the grey area if all choices of the positive items are equally likely to it; the genie knows "
        "everything but the items that it guesses."
    )
    return [DrawnFigure(caption, figure=figure, name=f"{data.metric}-below-bounds")]


def _draw(axes: Axes, rows: pd.DataFrame, styles: Mapping[str, LineStyle]) -> None:
    """Draws bounds and the genie in black, and each attack with its intervals and stars for the paper's values."""
    for attack, results in rows.groupby("attack", sort=False):
        ticks = results["tick"]
        mean = results["mean"]
        if attack == _BOUND:
            axes.fill_between(ticks, mean, 1, color=".85", label="no attack", lw=0)
            axes.plot(ticks, mean, color="k", lw=1.5, label=attack)
        elif attack in BOUNDS.values():
            axes.plot(ticks, mean, color="k", lw=1, ls="-.", label=attack)
        elif attack == _GENIE:
            axes.plot(ticks, mean, color="k", lw=1.5, ls="--", label=attack)
        else:
            style = styles[str(attack)]
            bars = axes.errorbar(
                ticks,
                mean,
                errors(results),
                elinewidth=1,
                label=attack,
                marker="o",
                ms=4,
                color=style.colour,
            )
            bars.lines[0].set_linestyle(style.linestyle)
            papers = of_papers(results)["paper"]
            if papers.notna().any():
                axes.plot(ticks, papers, ls="", marker="*", ms=9, mec="k", color=style.colour)
