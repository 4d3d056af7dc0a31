"""Figures of two measures per choice: what a defence costs, what a manipulation risks, and what a rank allows."""

import pandas as pd
import seaborn.objects as so

from evaluation.scores import SETTING, setting_columns
from reports.figures.figure_data import DrawnFigure, FigureData, drawn, errors, legend_right, of_data, styled
from reports.figures.line_styles import COLOURS
from reports.run import ATTACKS
from reports.tables import DATA, axis, described_settings, words

DEFENCE, MANIPULATION = SETTING + "defence", SETTING + "manipulation"
_MITIGATION, _AMOUNT = SETTING + "mitigation", SETTING + "amount"
MITIGATIONS = (_MITIGATION, _AMOUNT)
_UTILITIES = ("ndcg@10", "hr@10")
_ANY_CHECK = "any-check"
"""Label of `experiments.after.manipulation_checks`."""


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
    number = axis(rows)
    if number is None or not {"rank", "spare"} <= set(rows["metric"]):
        return []
    wide = rows.assign(**{name: rows[name].map(str) for name in keys})
    wide = wide.pivot_table(index=["attack", *keys], columns="metric", values="mean").reset_index()
    wide = wide.assign(used=wide["rank"] / (wide["rank"] + wide["spare"])).dropna(subset=["used", "recovered"])
    shown = wide.merge(data.rows.assign(**{name: data.rows[name].map(str) for name in keys}))
    others = [name for name in keys if name != number]
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
    data: FigureData, values: pd.DataFrame, column: str, *, y: str, caption: str, across: str
) -> list[DrawnFigure]:
    """A panel per other setting; choices named ``KIND AMOUNT`` are connected by kind."""
    attacks = data.rows[data.rows["role"].isin(ATTACKS) & data.rows["mean"].notna()]
    others = {name.removeprefix(SETTING) for name in words(values) if name not in (DATA, column)}
    points = []
    for frame in (attacks, values):
        keyed = frame.assign(panel=described_settings(frame, others), choice=frame[column].map(str))
        points.append(keyed.sort_values("mean", ascending=False).drop_duplicates(["panel", "choice"]))
    both = points[0].merge(points[1], on=["panel", "choice"], suffixes=("_x", "_y"))
    if both.empty:
        return []
    both["kind"] = both["choice"].str.rpartition(" ")[0].where(both["choice"].str.contains(" "), both["choice"])
    panels = list(dict.fromkeys(both["panel"]))
    figure, (every,) = styled(1 + 4.6 * len(panels), 4, columns=len(panels), sharey=True)
    kinds = list(dict.fromkeys(both["kind"]))
    for axes, panel in zip(every, panels, strict=True):
        for kind, own in both[both["panel"] == panel].sort_values("mean_x").groupby("kind", sort=False):
            colour = COLOURS[kinds.index(str(kind)) % len(COLOURS)]
            ends = errors(own, "_y"), errors(own, "_x")
            axes.errorbar(own["mean_x"], own["mean_y"], *ends, marker="o", lw=1, color=colour)
            for choice, across_, up in zip(own["choice"], own["mean_x"], own["mean_y"], strict=True):
                axes.annotate(choice, (across_, up), xytext=(4, 4), textcoords="offset points", fontsize=8)
        axes.axvline(0.5, color=".5", ls=":")
        axes.set(title=panel, xlabel=across)
    every[0].set(ylabel=y)
    return [DrawnFigure(f"{of_data(values)}{caption}", figure=figure, name=f"{y}-by-{column.removeprefix(SETTING)}")]
