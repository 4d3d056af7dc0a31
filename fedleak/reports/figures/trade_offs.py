"""Figures of two measures per choice: what a defence costs, what a manipulation risks, and what a rank allows."""

import dataclasses
import textwrap
from typing import Any

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

DEFENCE, MANIPULATION = SETTING + "defence", SETTING + "manipulation"
_MITIGATION, _AMOUNT = SETTING + "mitigation", SETTING + "amount"
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
    found = []
    for attack, own in both.groupby("attack", sort=False):
        plain = own[_MITIGATION] == "none"
        kinds = [own[plain].assign(kind=kind) for kind in dict.fromkeys(own[_MITIGATION][~plain])]
        curves = pd.concat([*kinds, own[~plain].assign(kind=own[_MITIGATION])], ignore_index=True)
        curves = curves.iloc[curves[_AMOUNT].astype(float).argsort(kind="stable")].reset_index(drop=True)
        plot = so.Plot(curves, x="mean", y="mean_utility", color="kind").add(so.Path(marker="o", pointsize=4))
        plot = plot.add(so.Range(linewidth=0.6), xmin="low", xmax="high", legend=False)
        plot = plot.add(so.Range(linewidth=0.6), ymin="low_utility", ymax="high_utility", legend=False)
        labels = {"x": "adversary's average precision, times chance", "y": "utility relative to no mitigation"}
        figure = drawn(plot.label(**labels, color="mitigation"), 6, 4)
        figure.axes[0].axvline(1, color=".5", ls=":")
        caption = f"Privacy and utility against {attack}; the upper left is better."
        found.append(DrawnFigure(caption, figure=figure, name=f"mitigations-{attack}"))
    return found


def privacy_and_utility(data: FigureData) -> list[DrawnFigure]:
    """Utility of the trained model against the AUC of the best attack, a point per defence."""
    found = []
    for name in _UTILITIES:
        utility = data.results[(data.results["metric"] == name) & (data.results["attack"] == "none")]
        if DEFENCE in utility and utility[DEFENCE].nunique() > 1:
            text = f"{name} of the model against the AUC of the best attack, by defence; the upper left is better."
            found += _scatter(data, utility, DEFENCE, y=name, caption=text, across="auc of the best attack")
    return found


def signal_kept(data: FigureData) -> list[DrawnFigure]:
    """What defences leave of the mean update against the best attack, a point per defence tried on a recording."""
    kept = data.results[data.results["metric"] == COSINE]
    if kept.empty or kept[DEFENCE].nunique() < 2 or not is_judged(data.rows).any():
        return []
    under = data.rows[data.rows[DEFENCE] != NONE]["attack"]
    data = dataclasses.replace(data, rows=data.rows[data.rows["attack"].isin(under)])
    side = "right" if metric_of(data.metric).lower_is_better else "left"
    inferred = next((one for one in data.rows["tells"] if one), "something about the client")
    text = f"If clients had used a defence, could the server infer {inferred}? Cosine of the round's mean update with"
    text += f" and without it, against {data.metric} of the best attack that ran under all of them; the upper {side} is"
    text += " better. For a filled point, no other is at least as good in both and better in one."
    return _scatter(data, kept, DEFENCE, y=COSINE, caption=text, across=f"{data.metric} of the best attack", front=True)


def detectability(data: FigureData) -> list[DrawnFigure]:
    """AUC of the best attack against the share of clients that detect a manipulation, a point per manipulation."""
    rows = data.results
    flagged = rows[(rows["metric"] == "flagged") & (rows["attack"] == _ANY_CHECK)]
    if MANIPULATION not in flagged or flagged[MANIPULATION].nunique() < 2:
        return []
    text = "Share of clients with at least one check that flags the features, against the AUC of the best attack; the "
    text += "lower right is better for the server. Without a manipulation, flags are false."
    return _scatter(data, flagged, MANIPULATION, y="flagged", caption=text, across="auc of the best attack")


def against_rank(data: FigureData) -> list[DrawnFigure]:
    """Share of exactly recovered records against the share of a layer's dimensions that an update uses."""
    rows = data.results
    keys = [name for name in setting_columns(rows) if name != DATA]
    along = axis(rows)
    if along is None or not {"rank", "spare"} <= set(rows["metric"]):
        return []
    wide = rows.assign(**{name: rows[name].map(str) for name in keys})
    wide = wide.pivot_table(index=["attack", *keys], columns="metric", values="mean").reset_index()
    wide = wide.assign(used=wide["rank"] / (wide["rank"] + wide["spare"])).dropna(subset=["used", "recovered"])
    shown = wide.merge(data.rows.assign(**{name: data.rows[name].map(str) for name in keys}))
    others = [name for name in keys if name != along]
    lines = [own.sort_values("used") for _, own in shown.groupby(["attack", *others], sort=False) if len(own) > 2]
    if not lines:
        return []
    differ = {name.removeprefix(SETTING) for name in others if pd.concat(lines)[name].nunique() > 1}
    figure, ((axes,),) = styled(6, 4)
    for place, own in enumerate(lines):
        label = ", ".join(filter(None, [own["attack"].iloc[0], described_settings(own, differ)[0]]))
        colour = COLOURS[place % len(COLOURS)]
        axes.errorbar(own["used"], own["mean"], errors(own), marker="o", lw=1, color=colour, label=label)
    axes.set(xlabel="rank of the change as a share of the dimensions", ylabel="recovered")
    legend_right(axes)
    text = "Share of exactly recovered records, by the share of its first layer's dimensions that a client's change"
    return [DrawnFigure(f"{of_data(rows)}{text} spans (means over clients).", figure=figure, name="recovered-by-rank")]


def _scatter(
    data: FigureData, values: pd.DataFrame, column: str, *, y: str, caption: str, across: str, front: bool = False
) -> list[DrawnFigure]:
    """A panel per other setting; choices named ``KIND AMOUNT`` are connected by kind.

    With `front`, points are filled that no other has less leak and a larger value than.
    """
    lower = metric_of(data.metric).lower_is_better
    attacks = data.rows[data.rows["role"].isin(ATTACKS) & data.rows["mean"].notna()]
    others = {name.removeprefix(SETTING) for name in words(values) if name not in (DATA, column)}
    # Of each choice the best attack, and the largest value.
    cells = Cells(data.results)
    ranks = pd.Series([cells.rank(row) for row in records(attacks)], index=attacks.index, dtype=object)
    points = []
    for frame in (attacks.assign(order=ranks), values.assign(order=values["mean"])):
        keyed = frame.assign(panel=described_settings(frame, others), choice=frame[column].map(str))
        ordered = keyed.sort_values("order", ascending=False)
        points.append(ordered.drop_duplicates(["panel", "choice"]).drop(columns="order"))
    both = points[0].merge(points[1], on=["panel", "choice"], suffixes=("_x", "_y"))
    if both.empty:
        return []
    both["kind"] = both["choice"].str.rpartition(" ")[0].where(both["choice"].str.contains(" "), both["choice"])
    panels = list(dict.fromkeys(both["panel"]))
    figure, (every,) = styled(1 + 4.6 * len(panels), 4, columns=len(panels), sharey=True)
    kinds = list(dict.fromkeys(both["kind"]))
    marks, listed = dict[str, Mark](), list[str]()
    for axes, panel in zip(every, panels, strict=True):
        shown = both[both["panel"] == panel].sort_values(["mean_x", "mean_y"], kind="stable")
        for kind, own in shown.groupby("kind", sort=False):
            colour = COLOURS[kinds.index(str(kind)) % len(COLOURS)]
            ends = errors(own, "_y"), errors(own, "_x")
            axes.errorbar(own["mean_x"], own["mean_y"], *ends, marker="", lw=1, color=colour)
            for point in records(own):
                face = colour if not front or _is_best(point, shown, lower) else "white"
                (dot,) = axes.plot(point["mean_x"], point["mean_y"], "o", ms=6, mfc=face, mec=colour, zorder=3)
                said = f"{across} {number(point['mean_x'])} ({point['attack_x']}), {y} {number(point['mean_y'])}"
                mark(dot, marks, f"{point['choice']}: {said}")
        listed += _label(axes, shown, panel, front, lower)
        guessing = metric_of(data.metric).guessing
        if guessing is not None:
            axes.axvline(guessing, color=".5", ls=":")
        axes.set(title=panel, xlabel=across)
    every[0].set(ylabel=y)
    caption = " ".join([f"{of_data(values)}{caption}", *listed])
    return [DrawnFigure(caption, figure=figure, marks=marks, name=f"{y}-by-{column.removeprefix(SETTING)}")]


def _label(axes: Axes, points: pd.DataFrame, panel: str, front: bool, lower: bool) -> list[str]:
    """Writes the names of a few points at them; numbers of many, and returns the sentences that list these.

    Points that lie together share a name or number. With `front`, the numbers of filled points are bold, and they stand
    first.
    """
    middle = sum(points["mean_x"].agg(["min", "max"])) / 2
    named = len(points) <= _NAMED
    filled, rest = list[str](), list[str]()
    for position, (place, choices) in enumerate(_places(points).items(), start=1):
        own = points[points["choice"].isin(choices)]
        best = [point["choice"] for point in records(own) if front and _is_best(point, points, lower)]
        side = {"xytext": (4, 4), "ha": "left"} if place[0] < middle else {"xytext": (-4, 4), "ha": "right"}
        text = textwrap.fill(", ".join(choices), _LABEL) if named else str(position)
        weight = "bold" if best and not named else "normal"
        axes.annotate(text, place, textcoords="offset points", fontsize=8, fontweight=weight, **side)
        filled += [f"{position} {', '.join(best)}"] if best else []
        others = [choice for choice in choices if choice not in best]
        rest += [f"{position} {', '.join(others)}"] if others else []
    if named:
        return []
    where = f" in {panel}" if panel else ""
    said = [f"Filled{where}: {'; '.join(filled)}."] if filled else []
    return [*said, f"{'Others' if filled else f'Points{where}'}: {'; '.join(rest)}."] if rest else said


def _places(points: pd.DataFrame) -> dict[tuple[float, float], list[str]]:
    """Names of points by their place, those of points that lie together in one list."""
    grid = [(points[name] / ((points[name].max() - points[name].min()) or 1) * _CELLS).round() for name in _MEANS]
    found = {}
    for _, own in points.groupby(grid, sort=False):
        across, up = own[list(_MEANS)].iloc[0]
        found[float(across), float(up)] = own["choice"].tolist()
    return found


def _is_best(point: dict[str, Any], points: pd.DataFrame, lower: bool) -> bool:
    """Whether no other point has at most its leak and at least its value, and one of them better."""
    sign = -1 if lower else 1
    leaks, kept = sign * points["mean_x"], points["mean_y"]
    leak, value = sign * point["mean_x"], point["mean_y"]
    return not bool(((leaks <= leak) & (kept >= value) & ((leaks < leak) | (kept > value))).any())
