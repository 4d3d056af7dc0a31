"""Figures of true and inferred class shares: means over clients, or a panel per client."""

import dataclasses
import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedleak.core.metric_table import judges
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.result_names import ATTACKS, CLIENTS, DISTANCE
from fedleak.evaluation.scores import SETTING, setting_columns
from fedleak.reports.figures.figure_data import DrawnFigure, FigureData, Mark, intervals, mark, of_data, styled
from fedleak.reports.tables import described_settings

_MOST_SETTINGS, _MOST_CLIENTS, _MOST_ATTACKS = 8, 12, 3
_COLUMNS = 4
INFERRED = "what the server infers"
"""Legend of the attack in a picture of one."""
_LAST = False, -math.inf, -math.inf
"""Rank of an attack whose results do not compare it."""
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
        clients = sorted(kept["person"].unique(), key=lambda one: data.clients[one])
        kept = kept[kept["person"].isin(clients[:_MOST_CLIENTS])]
        whose = "every client" if len(clients) <= _MOST_CLIENTS else f"{_MOST_CLIENTS} of {len(clients)} clients"
        caption = f"True (bars) and inferred class shares of {whose}{intervals(kept)}: {_setting_of(kept)}."
        marks: dict[str, Mark] = {}
        figure = _panels(kept, names, data, marks)
        found.append(DrawnFigure(caption, figure=figure, marks=marks, name="class-shares"))
    return found


def mean_compositions(data: FigureData) -> list[DrawnFigure]:
    """Mean class shares over the clients of the first seed and round, for the best attacks and the first settings."""
    keys = [name for name in setting_columns(data.rows) if name != SETTING + "round"]
    settings = list(data.rows.groupby(keys, sort=False, dropna=False)) if keys else [((), data.rows)]
    drawings = []
    for _, inside in settings[:_MOST_SETTINGS]:
        drawing = mean_shares(dataclasses.replace(data, rows=inside))
        if drawing is not None:
            # One figure of several says of which setting it is.
            caption = f"{drawing.caption} Setting: {_setting_of(inside)}."
            drawings.append(dataclasses.replace(drawing, caption=caption))
    return drawings


def mean_shares(data: FigureData, attack: str | None = None) -> DrawnFigure | None:
    """Mean class shares over the clients of the first seed and round; None if no attack has rows.

    Args:
        data: rows of one setting, over clients, see `fedleak.evaluation.persons.over_clients`.
        attack: the only attack to draw, if it has rows; None for the best ones.
    """
    rows = data.rows
    first = rows[(rows["seed"] == rows["seed"].iloc[0]) & (rows["round"] == rows["round"].iloc[0])]
    names = [name for name in _best(data) if name in set(first["attack"]) & data.styles.keys()][:_MOST_ATTACKS]
    if not names:  # the table shows none of their metrics
        return None
    alone = attack is not None
    if attack is not None:
        names = [attack] if attack in set(first["attack"]) else names[:1]
    drawn = first[first["attack"].isin(names)]
    figure, ((axes,),) = styled(4.6 if alone else 7, 2.8)
    low, high = drawn["inferred"] - drawn[DISTANCE], drawn["inferred"] + drawn[DISTANCE]
    # A picture of one attack stands on the first screen: its legend needs no name of an attack.
    _draw_shares(axes, drawn.assign(low=low, high=high), names, data, label=INFERRED if alone else None)
    axes.set(xlabel="class", ylabel="mean share of a client's examples")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.2), ncols=2, frameon=False)
    if alone:
        caption = (
            f"{of_data(drawn)}the true share of each class (bars, mean over {int(drawn[CLIENTS].min())} clients), and"
            f" {INFERRED} from each update (dots). A line is as long as twice the mean distance between the two."
        )
        return DrawnFigure(caption, figure=figure, name="class-shares")
    caption = (
        f"{of_data(drawn)}mean over {int(drawn[CLIENTS].min())} clients of the true class shares (bars) and of what"
        f" {'the attack infers' if len(names) == 1 else 'attacks infer'} from each update (dots). A line is as long as"
        " twice the mean distance between a client's inferred and true share. Single clients are shown with --persons."
    )
    return DrawnFigure(caption, figure=figure, name="class-shares")


def one_client(data: FigureData, attack: str) -> DrawnFigure:
    """True and inferred class shares of the client with the median error, in the first seed and round.

    The rows are of one setting; without the attack among them, those of the best one are drawn.
    """
    rows = data.rows
    attack = attack if attack in set(rows["attack"]) else _best(data)[0]
    own = rows[(rows["attack"] == attack) & (rows["seed"] == rows["seed"].iloc[0])]
    own = own[own["round"] == own["round"].iloc[0]]
    wrong = (own["inferred"] - own["true"]).abs().groupby(own["person"]).sum().sort_values(kind="stable")
    person = wrong.index[(len(wrong) - 1) // 2]
    kept = own[own["person"] == person]
    figure, ((axes,),) = styled(4.6, 2.8)
    _draw_shares(axes, kept, [attack], data, label=INFERRED)
    axes.set(xlabel="class", ylabel="share of its examples")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.2), ncols=2, frameon=False)
    client = data.clients[int(person)]
    marks: dict[str, Mark] = {}
    mark(axes, marks, f"client {client}", client)
    caption = (
        f"{of_data(kept)}true class shares of client {client} (bars), and what {attack} infers from its update (dots"
        f"{intervals(kept)}). Of {len(wrong)} clients it has the median error."
    )
    return DrawnFigure(caption, figure=figure, marks=marks, name="class-shares-of-one-client")


def _best(data: FigureData) -> list[str]:
    """Attacks, or baselines where there is none, those first that infer most, see `fedleak.evaluation.answers`."""
    rows = data.rows
    attacks = rows[rows["role"].isin(ATTACKS)]
    labels = [str(label) for label in (rows if attacks.empty else attacks)["attack"].unique()]
    cells = Cells(data.results)
    ranks: dict[str, tuple[bool, float, float]] = {}
    for row in cells.rows:
        if row["attack"] in labels and judges(row["metric"], row["question"]):
            ranks[row["attack"]] = max(cells.rank(row), ranks.get(row["attack"], _LAST))
    return sorted(labels, key=lambda label: ranks.get(label, _LAST), reverse=True)


def _panels(rows: pd.DataFrame, names: list[str], data: FigureData, marks: dict[str, Mark]) -> Figure:
    whose = {data.clients[int(str(person))]: own for person, own in rows.groupby("person")}
    clients = sorted(whose.items(), key=lambda one: one[0])
    down = -(-len(clients) // _COLUMNS)
    figure, panels = styled(12, 0.7 + 2.1 * down, down, _COLUMNS, sharex=True, sharey=True)
    grid = panels.ravel()
    for axes in grid[len(clients) :]:
        axes.remove()
    for axes, (client, own) in zip(grid, clients, strict=False):
        mark(axes, marks, f"client {client}", client)
        _draw_shares(axes, own, names, data)
        axes.set_title(f"client {client}", fontsize=11)
    figure.supxlabel("class", fontsize=11)
    figure.supylabel("share of the client's examples", fontsize=11)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def _draw_shares(
    axes: Axes, rows: pd.DataFrame, names: list[str], data: FigureData, *, label: str | None = None
) -> None:
    """Draws a bar with the true share of each class, and a dot with a line from low to high for each attack.

    `label` stands for the name of the only attack; None for its name.
    """
    truth = rows.drop_duplicates("class")
    axes.bar(truth["class"], truth["true"], color=".8", label="true share")
    for place, name in enumerate(names):
        part = rows[rows["attack"] == name]
        # Dots of several attacks stand next to each other within the bar of a class, 0.6 of its step wide.
        x = part["class"] + 0.6 * ((place + 0.5) / len(names) - 0.5)
        colour = data.styles[name].colour
        axes.vlines(x, part["low"], part["high"], color=colour, lw=1)
        axes.plot(x, part["inferred"], ls="", marker="o", ms=4, color=colour, label=label or name)
    axes.grid(visible=False, axis="x")
    if len(truth) <= _MOST_LABELS:
        axes.set_xticks(truth["class"].tolist())


def _setting_of(rows: pd.DataFrame) -> str:
    """The setting of rows that have one, in words."""
    names = {name.removeprefix(SETTING) for name in setting_columns(rows)}
    return described_settings(rows.head(1), names)[0]
