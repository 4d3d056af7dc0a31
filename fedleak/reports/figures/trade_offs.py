"""Figures of two measures per choice: what a defence costs, what a manipulation risks, and what a rank allows."""

import dataclasses
import textwrap

import pandas as pd
import seaborn.objects as so
from matplotlib.axes import Axes

from fedleak.core.metric_table import metric as metric_of
from fedleak.evaluation.as_recorded import COSINE, NONE
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.result_names import ATTACKS, DATA
from fedleak.evaluation.scores import SETTING, number, records, setting_columns
from fedleak.reports.figures.figure_data import (
    DrawnFigure,
    FigureData,
    Mark,
    drawn,
    errors,
    legend_right,
    mark,
    of_data,
    styled,
)
from fedleak.reports.figures.line_styles import COLOURS
from fedleak.reports.tables import axis, described_settings, words

DEFENCE = SETTING + "defence"
MANIPULATION = SETTING + "manipulation"
_MITIGATION = SETTING + "mitigation"
_AMOUNT = SETTING + "amount"
MITIGATIONS = (_MITIGATION, _AMOUNT)
_UTILITIES = ("ndcg@10", "hr@10")
_MEANS = ("mean_x", "mean_y")
_LABEL = 26
"""Letters in a line of the names at a point."""
_NAMED = 8
"""Largest number of points that have their names at them."""
_CELLS = 25
"""Parts of the range of points in which two lie together."""
_ANY_CHECK = "any-check"
"""Label of `fedleak.tables.after.manipulation_checks`."""


def mitigations(data: FigureData) -> list[DrawnFigure]:
    """Utility against the adversary's precision, a curve per mitigation (deanonymization, figure 12)."""
    keys = [name for name in setting_columns(data.results) if name not in (_MITIGATION, _AMOUNT)]
    utility = data.results[data.results["metric"] == "utility"].fillna(dict.fromkeys(keys, ""))
    rows = data.rows[data.rows["role"].isin(ATTACKS)].fillna(dict.fromkeys(keys, ""))
    both = rows.merge(utility, on=[_MITIGATION, _AMOUNT, *keys], suffixes=("", "_utility"))
    drawings = []
    for attack, results in both.groupby("attack", sort=False):
        # The point without mitigation begins the curve of each, which goes on by its amount.
        is_plain = results[_MITIGATION] == "none"
        mitigated = results[~is_plain].assign(kind=results[_MITIGATION])
        starts = [results[is_plain].assign(kind=kind) for kind in dict.fromkeys(mitigated["kind"])]
        curves = pd.concat([*starts, mitigated], ignore_index=True)
        curves = curves.iloc[curves[_AMOUNT].astype(float).argsort(kind="stable")].reset_index(drop=True)
        plot = so.Plot(curves, x="mean", y="mean_utility", color="kind").add(so.Path(marker="o", pointsize=4))
        plot = plot.add(so.Range(linewidth=0.6), xmin="low", xmax="high", legend=False)
        plot = plot.add(so.Range(linewidth=0.6), ymin="low_utility", ymax="high_utility", legend=False)
        plot = plot.label(
            x="adversary's average precision, times chance",
            y="utility relative to no mitigation",
            color="mitigation",
        )
        figure = drawn(plot, 6, 4)
        # An attacker who guesses has the precision of chance.
        figure.axes[0].axvline(1, color=".5", ls=":")
        caption = f"Privacy and utility against {attack}; the upper left is better."
        drawings.append(DrawnFigure(caption, figure=figure, name=f"mitigations-{attack}"))
    return drawings


def privacy_and_utility(data: FigureData) -> list[DrawnFigure]:
    """Utility of the trained model against the AUC of the best attack, a point per defence."""
    drawings = []
    for name in _UTILITIES:
        utility = data.results[(data.results["metric"] == name) & (data.results["attack"] == "none")]
        if DEFENCE in utility and utility[DEFENCE].nunique() > 1:
            text = f"{name} of the model against the AUC of the best attack, by defence; the upper left is better."
            drawings += _scatter(data, utility, DEFENCE, y=name, caption=text, across="auc of the best attack")
    return drawings


def signal_kept(data: FigureData) -> list[DrawnFigure]:
    """What defences leave of the mean update against the best attack, a point per defence tried on a recording."""
    cosines = data.results[data.results["metric"] == COSINE]
    if cosines.empty or cosines[DEFENCE].nunique() < 2 or not is_judged(data.rows).any():
        return []
    # An attack that ran on the recording only would be the best there, and make each defence look better.
    under_defences = data.rows[data.rows[DEFENCE] != NONE]["attack"]
    data = dataclasses.replace(data, rows=data.rows[data.rows["attack"].isin(under_defences)])
    side = "right" if metric_of(data.metric).lower_is_better else "left"
    inferred = next((text for text in data.rows["tells"] if text), "something about the client")
    caption = (
        f"If clients had used a defence, could the server infer {inferred}? Cosine of the round's mean update with"
        f" and without it, against {data.metric} of the best attack that ran under all of them; the upper {side} is"
        " better. For a filled point, no other is at least as good in both and better in one."
    )
    return _scatter(
        data,
        cosines,
        DEFENCE,
        y=COSINE,
        caption=caption,
        across=f"{data.metric} of the best attack",
        front=True,
    )


def detectability(data: FigureData) -> list[DrawnFigure]:
    """AUC of the best attack against the share of clients that detect a manipulation, a point per manipulation."""
    rows = data.results
    flagged = rows[(rows["metric"] == "flagged") & (rows["attack"] == _ANY_CHECK)]
    if MANIPULATION not in flagged or flagged[MANIPULATION].nunique() < 2:
        return []
    caption = (
        "Share of clients with at least one check that flags the features, against the AUC of the best attack; the "
        "lower right is better for the server. Without a manipulation, flags are false."
    )
    return _scatter(data, flagged, MANIPULATION, y="flagged", caption=caption, across="auc of the best attack")


def against_rank(data: FigureData) -> list[DrawnFigure]:
    """Share of exactly recovered records against the share of a layer's dimensions that an update uses."""
    rows = data.results
    keys = [name for name in setting_columns(rows) if name != DATA]
    along = axis(rows)
    if along is None or not {"rank", "spare"} <= set(rows["metric"]):
        return []
    # A row for each attack and setting, with a column for each metric.
    wide = rows.assign(**{name: rows[name].map(str) for name in keys})
    wide = wide.pivot_table(index=["attack", *keys], columns="metric", values="mean").reset_index()
    # Dimensions of a layer are those that the change spans, its rank, and those to spare.
    wide = wide.assign(used=wide["rank"] / (wide["rank"] + wide["spare"])).dropna(subset=["used", "recovered"])
    with_intervals = wide.merge(data.rows.assign(**{name: data.rows[name].map(str) for name in keys}))
    # A curve needs three points along the numeric setting.
    other_keys = [name for name in keys if name != along]
    curves = []
    for _, results in with_intervals.groupby(["attack", *other_keys], sort=False):
        if len(results) > 2:
            curves.append(results.sort_values("used"))
    if not curves:
        return []
    all_curves = pd.concat(curves)
    differ = {name.removeprefix(SETTING) for name in other_keys if all_curves[name].nunique() > 1}
    figure, ((axes,),) = styled(6, 4)
    for position, curve in enumerate(curves):
        label = ", ".join(filter(None, [curve["attack"].iloc[0], described_settings(curve, differ)[0]]))
        colour = COLOURS[position % len(COLOURS)]
        axes.errorbar(curve["used"], curve["mean"], errors(curve), marker="o", lw=1, color=colour, label=label)
    axes.set(xlabel="rank of the change as a share of the dimensions", ylabel="recovered")
    legend_right(axes)
    caption = (
        f"{of_data(rows)}Share of exactly recovered records, by the share of its first layer's dimensions that a"
        " client's change spans (means over clients)."
    )
    return [DrawnFigure(caption, figure=figure, name="recovered-by-rank")]


def _scatter(
    data: FigureData, values: pd.DataFrame, column: str, *, y: str, caption: str, across: str, front: bool = False
) -> list[DrawnFigure]:
    """A panel per other setting; choices named ``KIND AMOUNT`` are connected by kind.

    With `front`, points are filled that no other has less leak and a larger value than.
    """
    points = _points(data, values, column)
    if points.empty:
        return []
    panels = list(dict.fromkeys(points["panel"]))
    figure, (panel_axes,) = styled(1 + 4.6 * len(panels), 4, columns=len(panels), sharey=True)
    kinds = list(dict.fromkeys(points["kind"]))
    marks: dict[str, Mark] = {}
    listed: list[str] = []
    for axes, panel in zip(panel_axes, panels, strict=True):
        in_panel = points[points["panel"] == panel].sort_values(["mean_x", "mean_y"], kind="stable")
        filled = [True] * len(in_panel)
        if front:
            filled = _on_front(in_panel, lower_leaks=metric_of(data.metric).lower_is_better)
        in_panel = in_panel.assign(filled=filled)
        # A line through the amounts of a kind, then a point for each, with what the page says of it.
        for kind, of_kind in in_panel.groupby("kind", sort=False):
            colour = COLOURS[kinds.index(str(kind)) % len(COLOURS)]
            axes.errorbar(
                of_kind["mean_x"],
                of_kind["mean_y"],
                errors(of_kind, "_y"),
                errors(of_kind, "_x"),
                marker="",
                lw=1,
                color=colour,
            )
            for point in records(of_kind):
                face = colour if point["filled"] else "white"
                (dot,) = axes.plot(point["mean_x"], point["mean_y"], "o", ms=6, mfc=face, mec=colour, zorder=3)
                x_text = f"{across} {number(point['mean_x'])} ({point['attack_x']})"
                mark(dot, marks, f"{point['choice']}: {x_text}, {y} {number(point['mean_y'])}")
        listed += _label(axes, in_panel, panel, front)
        guessing = metric_of(data.metric).guessing
        if guessing is not None:
            axes.axvline(guessing, color=".5", ls=":")
        axes.set(title=panel, xlabel=across)
    panel_axes[0].set(ylabel=y)
    caption = " ".join([f"{of_data(values)}{caption}", *listed])
    return [DrawnFigure(caption, figure=figure, marks=marks, name=f"{y}-by-{column.removeprefix(SETTING)}")]


def _points(data: FigureData, values: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row for each choice in a panel: its best attack's result with the suffix ``_x``, its value with ``_y``."""
    attacks = data.rows[data.rows["role"].isin(ATTACKS) & data.rows["mean"].notna()]
    panel_keys = {name.removeprefix(SETTING) for name in words(values) if name not in (DATA, column)}
    # Of each choice the best attack, and the largest value.
    cells = Cells(data.results)
    ranks = pd.Series([cells.rank(row) for row in records(attacks)], index=attacks.index, dtype=object)
    best = []
    for frame in (attacks.assign(order=ranks), values.assign(order=values["mean"])):
        keyed = frame.assign(panel=described_settings(frame, panel_keys), choice=frame[column].map(str))
        ordered = keyed.sort_values("order", ascending=False)
        best.append(ordered.drop_duplicates(["panel", "choice"]).drop(columns="order"))
    points = best[0].merge(best[1], on=["panel", "choice"], suffixes=("_x", "_y"))
    if points.empty:
        return points
    # "noise 0.1" and "noise 0.2" are of the kind "noise"; a choice in one word is its own kind.
    choices = points["choice"]
    return points.assign(kind=choices.str.rpartition(" ")[0].where(choices.str.contains(" "), choices))


def _label(axes: Axes, points: pd.DataFrame, panel: str, front: bool) -> list[str]:
    """Writes the names of a few points at them; numbers of many, and returns the sentences that list these.

    Points that lie together share a name or number. With `front`, the numbers of filled points are bold, and they stand
    first.
    """
    middle = sum(points["mean_x"].agg(["min", "max"])) / 2
    named = len(points) <= _NAMED
    on_front = set(points["choice"][points["filled"]]) if front else set()
    filled: list[str] = []
    rest: list[str] = []
    for position, (coordinates, choices) in enumerate(_choices_by_coordinates(points).items(), start=1):
        best = [choice for choice in choices if choice in on_front]
        not_best = [choice for choice in choices if choice not in on_front]
        if best:
            filled.append(f"{position} {', '.join(best)}")
        if not_best:
            rest.append(f"{position} {', '.join(not_best)}")
        # Texts of the left half stand right of their points, the others left of them, so that none leaves the axes.
        in_left_half = coordinates[0] < middle
        axes.annotate(
            textwrap.fill(", ".join(choices), _LABEL) if named else str(position),
            coordinates,
            textcoords="offset points",
            fontsize=8,
            fontweight="bold" if best and not named else "normal",
            xytext=(4, 4) if in_left_half else (-4, 4),
            ha="left" if in_left_half else "right",
        )
    if named:
        return []
    where = f" in {panel}" if panel else ""
    sentences = []
    if filled:
        sentences.append(f"Filled{where}: {'; '.join(filled)}.")
    if rest:
        heading = "Others" if filled else f"Points{where}"
        sentences.append(f"{heading}: {'; '.join(rest)}.")
    return sentences


def _choices_by_coordinates(points: pd.DataFrame) -> dict[tuple[float, float], list[str]]:
    """Choices by where they lie, those of points that lie together in one list, at the first of them."""
    # Points in one cell of a grid over their range lie together; a range of 0 is one cell.
    grid = []
    for name in _MEANS:
        span = points[name].max() - points[name].min()
        grid.append((points[name] / (span or 1) * _CELLS).round())
    choices = {}
    for _, together in points.groupby(grid, sort=False):
        across, up = together[list(_MEANS)].iloc[0]
        choices[float(across), float(up)] = together["choice"].tolist()
    return choices


def _on_front(points: pd.DataFrame, lower_leaks: bool) -> list[bool]:
    """Whether, of each point, no other has at most its leak and at least its value, and one of them better."""
    leaks = -points["mean_x"] if lower_leaks else points["mean_x"]
    values = points["mean_y"]
    on_front = []
    for leak, value in zip(leaks, values, strict=True):
        as_good = (leaks <= leak) & (values >= value)
        better_in_one = (leaks < leak) | (values > value)
        on_front.append(not bool((as_good & better_in_one).any()))
    return on_front
