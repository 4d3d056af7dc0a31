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

_MOST_SETTINGS = 8
"""Largest number of figures: the first settings have one."""
_MOST_CLIENTS = 12
"""Largest number of clients with a panel each."""
_MOST_ATTACKS = 3
"""Largest number of attacks next to each other in the bar of a class."""
_COLUMNS = 4
"""Panels of clients in a row."""
INFERRED = "what the server infers"
"""Legend of the attack in a picture of one."""
_LAST = (False, -math.inf, -math.inf)
"""Rank of an attack whose results do not compare it."""
_MOST_LABELS = 12
"""Largest number of classes with a label each."""


def compositions(data: FigureData) -> list[DrawnFigure]:
    """Class shares of the clients of the first seed and round, for the best attacks and the first settings."""
    drawings = []
    best = _best(data)
    keys = [name for name in setting_columns(data.rows) if name != SETTING + "round"]
    for _, in_setting in list(data.rows.groupby(keys, sort=False, dropna=False))[:_MOST_SETTINGS]:
        first = _of_first_seed_and_round(in_setting)
        names = _drawn_attacks(first, best, data)
        if not names:
            continue
        shares = first[first["attack"].isin(names)]
        clients = sorted(shares["person"].unique(), key=lambda person: data.clients[person])
        shares = shares[shares["person"].isin(clients[:_MOST_CLIENTS])]
        whose = "every client"
        if len(clients) > _MOST_CLIENTS:
            whose = f"{_MOST_CLIENTS} of {len(clients)} clients"
        caption = f"True (bars) and inferred class shares of {whose}{intervals(shares)}: {_setting_of(shares)}."
        marks: dict[str, Mark] = {}
        figure = _panels(shares, names, data, marks)
        drawings.append(DrawnFigure(caption, figure=figure, marks=marks, name="class-shares"))
    return drawings


def _of_first_seed_and_round(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the seed and the round of the first row."""
    is_first = (rows["seed"] == rows["seed"].iloc[0]) & (rows["round"] == rows["round"].iloc[0])
    first: pd.DataFrame = rows[is_first]
    return first


def _drawn_attacks(rows: pd.DataFrame, best: list[str], data: FigureData) -> list[str]:
    """The best attacks that have rows and a style; none where the table shows none of their metrics."""
    drawable = set(rows["attack"]) & data.styles.keys()
    return [name for name in best if name in drawable][:_MOST_ATTACKS]


def mean_compositions(data: FigureData) -> list[DrawnFigure]:
    """Mean class shares over the clients of the first seed and round, for the best attacks and the first settings."""
    keys = [name for name in setting_columns(data.rows) if name != SETTING + "round"]
    rows_by_setting = [data.rows]
    if keys:
        rows_by_setting = [rows for _, rows in data.rows.groupby(keys, sort=False, dropna=False)]
    drawings = []
    for in_setting in rows_by_setting[:_MOST_SETTINGS]:
        drawing = mean_shares(dataclasses.replace(data, rows=in_setting))
        if drawing is not None:
            # One figure of several says of which setting it is.
            caption = f"{drawing.caption} Setting: {_setting_of(in_setting)}."
            drawings.append(dataclasses.replace(drawing, caption=caption))
    return drawings


def mean_shares(data: FigureData, attack: str | None = None) -> DrawnFigure | None:
    """Mean class shares over the clients of the first seed and round; None if no attack has rows.

    Args:
        data: rows of one setting, over clients, see `fedleak.evaluation.persons.over_clients`.
        attack: the only attack to draw, if it has rows; None for the best ones.
    """
    first = _of_first_seed_and_round(data.rows)
    names = _drawn_attacks(first, _best(data), data)
    if not names:
        return None
    alone = attack is not None
    if attack is not None:
        names = [attack] if attack in set(first["attack"]) else names[:1]
    drawn = first[first["attack"].isin(names)]
    figure, ((axes,),) = styled(4.6 if alone else 7, 2.8)
    # No interval: the line goes a mean distance between inferred and true share down and up.
    low = drawn["inferred"] - drawn[DISTANCE]
    high = drawn["inferred"] + drawn[DISTANCE]
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
    inferring = "the attack infers" if len(names) == 1 else "attacks infer"
    caption = (
        f"{of_data(drawn)}mean over {int(drawn[CLIENTS].min())} clients of the true class shares (bars) and of what"
        f" {inferring} from each update (dots). A line is as long as"
        " twice the mean distance between a client's inferred and true share. Single clients are shown with --persons."
    )
    return DrawnFigure(caption, figure=figure, name="class-shares")


def one_client(data: FigureData, attack: str) -> DrawnFigure:
    """True and inferred class shares of the client with the median error, in the first seed and round.

    The rows are of one setting; without the attack among them, those of the best one are drawn.
    """
    rows = data.rows
    if attack not in set(rows["attack"]):
        attack = _best(data)[0]
    shares = rows[(rows["attack"] == attack) & (rows["seed"] == rows["seed"].iloc[0])]
    shares = shares[shares["round"] == shares["round"].iloc[0]]
    # Error of a client: the l1 distance between its shares; of an even number of clients, the lower middle one.
    errors = (shares["inferred"] - shares["true"]).abs().groupby(shares["person"]).sum().sort_values(kind="stable")
    person = errors.index[(len(errors) - 1) // 2]
    client_shares = shares[shares["person"] == person]
    figure, ((axes,),) = styled(4.6, 2.8)
    _draw_shares(axes, client_shares, [attack], data, label=INFERRED)
    axes.set(xlabel="class", ylabel="share of its examples")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.2), ncols=2, frameon=False)
    client = data.clients[int(person)]
    marks: dict[str, Mark] = {}
    mark(axes, marks, f"client {client}", client)
    caption = (
        f"{of_data(client_shares)}true class shares of client {client} (bars), and what {attack} infers from its"
        f" update (dots{intervals(client_shares)}). Of {len(errors)} clients it has the median error."
    )
    return DrawnFigure(caption, figure=figure, marks=marks, name="class-shares-of-one-client")


def _best(data: FigureData) -> list[str]:
    """Attacks, or baselines where there is none, those first that infer most, see `fedleak.evaluation.answers`."""
    rows = data.rows
    attacks = rows[rows["role"].isin(ATTACKS)]
    candidates = rows if attacks.empty else attacks
    labels = [str(label) for label in candidates["attack"].unique()]
    # An attack ranks as its best cell does, of the metrics that judge it.
    cells = Cells(data.results)
    ranks: dict[str, tuple[bool, float, float]] = {}
    for row in cells.rows:
        if row["attack"] in labels and judges(row["metric"], row["question"]):
            ranks[row["attack"]] = max(cells.rank(row), ranks.get(row["attack"], _LAST))
    return sorted(labels, key=lambda label: ranks.get(label, _LAST), reverse=True)


def _panels(rows: pd.DataFrame, names: list[str], data: FigureData, marks: dict[str, Mark]) -> Figure:
    """A panel for each client, in the order of their labels."""
    by_client = {data.clients[int(str(person))]: shares for person, shares in rows.groupby("person")}
    panel_rows = math.ceil(len(by_client) / _COLUMNS)
    figure, panels = styled(12, 0.7 + 2.1 * panel_rows, panel_rows, _COLUMNS, sharex=True, sharey=True)
    grid = panels.ravel()
    # The last row may have panels without a client.
    for axes in grid[len(by_client) :]:
        axes.remove()
    for axes, client in zip(grid, sorted(by_client), strict=False):
        mark(axes, marks, f"client {client}", client)
        _draw_shares(axes, by_client[client], names, data)
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
    for position, name in enumerate(names):
        estimates = rows[rows["attack"] == name]
        # Dots of several attacks stand next to each other within the bar of a class, 0.6 of its step wide.
        x = estimates["class"] + 0.6 * ((position + 0.5) / len(names) - 0.5)
        colour = data.styles[name].colour
        axes.vlines(x, estimates["low"], estimates["high"], color=colour, lw=1)
        axes.plot(x, estimates["inferred"], ls="", marker="o", ms=4, color=colour, label=label or name)
    axes.grid(visible=False, axis="x")
    if len(truth) <= _MOST_LABELS:
        axes.set_xticks(truth["class"].tolist())


def _setting_of(rows: pd.DataFrame) -> str:
    """The setting of rows that have one, in words."""
    names = {name.removeprefix(SETTING) for name in setting_columns(rows)}
    return described_settings(rows.head(1), names)[0]
