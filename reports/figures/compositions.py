"""Figure of true and inferred class shares, a panel per client."""

import pandas as pd
from matplotlib.figure import Figure

from evaluation.scores import SETTING, setting_columns
from reports.figures.figure_data import DrawnFigure, FigureData, styled
from reports.run import ATTACKS
from reports.tables import described_settings

_MOST_SETTINGS, _MOST_CLIENTS, _MOST_ATTACKS = 8, 12, 3
_COLUMNS = 4
_MOST_LABELS = 12
"""Largest number of classes with a label each."""


def compositions(data: FigureData) -> list[DrawnFigure]:
    """Class shares of the clients of the first seed and round, for the best attacks and the first settings."""
    found = []
    best = _best(data)
    keys = [name for name in setting_columns(data.rows) if name != SETTING + "round"]
    for _, inside in list(data.rows.groupby(keys, sort=False, dropna=False))[:_MOST_SETTINGS]:
        first = inside[(inside["seed"] == inside["seed"].iloc[0]) & (inside["round"] == inside["round"].iloc[0])]
        names = [name for name in best if name in set(first["attack"]) & data.styles.keys()][:_MOST_ATTACKS]
        if not names:  # the table shows none of their metrics
            continue
        kept = first[first["attack"].isin(names)]
        victims = kept["victim"].unique()
        kept = kept[kept["victim"].isin(victims[:_MOST_CLIENTS])]
        setting = described_settings(kept.head(1), {name.removeprefix(SETTING) for name in setting_columns(kept)})[0]
        whose = "every client" if len(victims) <= _MOST_CLIENTS else f"{_MOST_CLIENTS} of {len(victims)} clients"
        caption = f"True (bars) and inferred class shares of {whose} with 95% intervals: {setting}."
        found.append(DrawnFigure(caption, figure=_panels(kept, names, data), name="class-shares"))
    return found


def _best(data: FigureData) -> list[str]:
    """Attacks, or baselines where there is none, by their mean absolute error."""
    rows = data.rows
    attacks = rows[rows["role"].isin(ATTACKS)]
    rows = rows if attacks.empty else attacks
    wrong = (rows["inferred"] - rows["true"]).abs().groupby(rows["attack"], sort=False).mean()
    return [str(name) for name in wrong.sort_values(kind="stable").index]


def _panels(rows: pd.DataFrame, names: list[str], data: FigureData) -> Figure:
    clients = list(rows.groupby("victim", sort=False))
    down = -(-len(clients) // _COLUMNS)
    figure, panels = styled(12, 0.7 + 2.1 * down, down, _COLUMNS, sharex=True, sharey=True)
    grid = panels.ravel()
    for axes in grid[len(clients) :]:
        axes.remove()
    for number, (axes, (_, own)) in enumerate(zip(grid, clients, strict=False), start=1):
        truth = own.drop_duplicates("class")
        axes.bar(truth["class"], truth["true"], color=".8", label="true share")
        for place, name in enumerate(names):
            part = own[own["attack"] == name]
            x = part["class"] + 0.6 * ((place + 0.5) / len(names) - 0.5)
            colour = data.styles[name].colour
            axes.vlines(x, part["low"], part["high"], color=colour, lw=1)
            axes.plot(x, part["inferred"], ls="", marker="o", ms=4, color=colour, label=name)
        axes.set_title(f"client {number}", fontsize=11)
        axes.grid(visible=False, axis="x")
        if len(truth) <= _MOST_LABELS:
            axes.set_xticks(truth["class"].tolist())
    figure.supxlabel("class", fontsize=11)
    figure.supylabel("share of the client's examples", fontsize=11)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure
