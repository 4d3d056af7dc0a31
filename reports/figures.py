"""Figures of every report, each with the data that it requires.

Figures are drawn for the metrics that judge attacks and for the first two metrics of a run, so a new metric needs no
code. A new kind of figure is a function and an entry of `FIGURES`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import seaborn as sns
import seaborn.objects as so
from matplotlib.figure import Figure as Canvas

from attacks.estimates import ROC_GRID
from evaluation.runner import Evaluation
from evaluation.scores import SETTING, Line, differing, setting_columns
from protocol.metrics import metric as metric_of
from reports.against import against
from reports.below_bounds import below_bounds
from reports.drawing import COLOURS, Drawing, Material, drawn, of_data, svg, with_guessing
from reports.run import ATTACKS
from reports.tables import DATA, axis, described_settings
from reports.trade_offs import DEFENCE, MANIPULATION, detectability, privacy_and_utility

_MOST_LINES = 14
"""Largest number of curves in a figure."""
_MOST_SETTINGS, _MOST_CLIENTS, _MOST_ATTACKS = 8, 20, 4
"""Largest numbers in figures with a panel per client."""
_MITIGATION, _AMOUNT = SETTING + "mitigation", SETTING + "amount"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Kind of figure and its requirements.

    Attributes:
        table: ``results``; ``scores``, one row per victim; ``roc``, with ``label``, ``fpr`` and ``tpr``; or
            ``profiles``, see `evaluation.runner.Evaluation`.
        draw: function that makes the drawings.
        metric: the only metric to draw it for, None for all shown.
        columns: columns that the rows must have.
        axis: whether it requires a varying numeric setting, or none; None for either.
    """

    table: Literal["results", "scores", "roc", "profiles"]
    draw: Callable[[Material], list[Drawing]]
    metric: str | None = None
    columns: tuple[str, ...] = ()
    axis: bool | None = None

    def fits(self, rows: pd.DataFrame) -> bool:
        """Whether the rows meet the requirements."""
        given = set(self.columns) <= set(rows.columns)
        return given and len(rows) > 0 and (self.axis is None or self.axis == (axis(rows) is not None))


def drawings(evaluation: Evaluation, results: pd.DataFrame, metrics: Sequence[str]) -> list[Drawing]:
    """All figures for which a run has the data.

    Args:
        evaluation: scores.
        results: all results, with derived ones.
        metrics: metrics that the run reports.
    """
    profiles = evaluation.profiles
    if len(profiles):
        profiles = profiles.assign(role=[evaluation.lines.get(name, Line()).role for name in profiles["attack"]])
    tables = {"results": results, "scores": evaluation.scores, "roc": _roc_table(evaluation), "profiles": profiles}
    shown = dict.fromkeys([*metrics[:2], *(name for name in metrics if metric_of(name).judged)])
    found = []
    for figure in FIGURES:
        table = tables[figure.table]
        for name in ([figure.metric] if figure.metric else shown) if "metric" in table else [""]:
            rows = table[table["metric"] == name] if name else table
            for data, part in rows.groupby(DATA, sort=False) if DATA in rows else [("", rows)]:
                if figure.fits(part):
                    found += figure.draw(Material(part, name, results[results[DATA] == data] if data else results))
    return found


def _roc_table(evaluation: Evaluation) -> pd.DataFrame:
    """Mean curve of each label; empty if there are too many for a figure."""
    curves = {label: (rates / count).tolist() for label, (rates, count) in evaluation.roc.items() if count}
    if len(curves) > _MOST_LINES:
        return pd.DataFrame()
    parts = [pd.DataFrame({"label": name, "fpr": ROC_GRID.tolist(), "tpr": rates}) for name, rates in curves.items()]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _roc(material: Material) -> list[Drawing]:
    plot = so.Plot(material.rows, x="fpr", y="tpr", color="label").add(so.Line(linewidth=2))
    figure = drawn(plot.label(x="false-positive rate", y="true-positive rate", color=""), 5, 4)
    figure.axes[0].plot([0, 1], [0, 1], color=".5", ls=":")
    return [("Mean ROC curve over clients; the dotted line is guessing.", svg(figure))]


def _by_attack(material: Material) -> list[Drawing]:
    """A row per attack with a dot and an interval per setting, and stars for the paper's values."""
    rows = material.rows
    if rows["attack"].nunique() < 2:
        return []
    keys = differing(rows)
    frame = rows.assign(setting=described_settings(rows, keys))
    plot = so.Plot(frame, y="attack", x="mean", color="setting" if keys else None)
    plot = plot.add(so.Dot(pointsize=5), so.Dodge()).add(so.Range(), so.Dodge(), xmin="low", xmax="high", legend=False)
    stars = "paper" in frame and bool(frame["paper"].notna().any())
    if stars:
        plot = plot.add(so.Dot(marker="*", pointsize=9, edgecolor="k"), so.Dodge(), x="paper", legend=False)
    figure = drawn(plot.label(x=material.metric, y="", color=""), 6, 1.2 + 0.35 * rows["attack"].nunique())
    note = "; stars are the paper's values" if stars else ""
    caption = f"{of_data(rows)}{material.metric} by attack with 95% intervals{note}."
    return [(caption, svg(with_guessing(figure, material.metric, horizontal=False)))]


def _distribution(material: Material) -> list[Drawing]:
    """Empirical distribution of the score over clients."""
    rows, keys = material.rows[material.rows["value"].notna()], differing(material.rows)
    roles = dict(zip(material.results["attack"], material.results["role"], strict=True))
    if keys:  # with several settings, attacks only
        rows = rows[rows["attack"].map(roles).isin(ATTACKS)]
    labels = zip(rows["attack"], described_settings(rows, keys), strict=True)
    frame = rows.assign(line=[", ".join(part for part in parts if part) for parts in labels])
    # Binary scores have no distribution worth drawing.
    if frame.empty or frame["line"].nunique() > _MOST_LINES or frame["value"].isin([0.0, 1.0]).all():
        return []
    figure = Canvas(figsize=(5 + 0.08 * frame["line"].str.len().max(), 4), layout="constrained")
    axes = figure.subplots()
    palette = sns.color_palette(COLOURS, frame["line"].nunique())
    sns.ecdfplot(frame.reset_index(drop=True), y="value", hue="line", palette=palette, lw=2, ax=axes)
    sns.move_legend(axes, "center left", bbox_to_anchor=(1, 0.5), title="")
    axes.set(xlabel="share of clients", ylabel=material.metric)
    caption = f"{of_data(rows)}{material.metric} of each client, in ascending order."
    return [(caption, svg(with_guessing(figure, material.metric)))]


def _privacy_and_utility(material: Material) -> list[Drawing]:
    """Utility against the adversary's precision, a curve per mitigation (deanonymization, figure 12)."""
    keys = [name for name in setting_columns(material.results) if name not in (_MITIGATION, _AMOUNT)]
    utility = material.results[material.results["metric"] == "utility"].fillna(dict.fromkeys(keys, ""))
    rows = material.rows[material.rows["role"].isin(ATTACKS)].fillna(dict.fromkeys(keys, ""))
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
        found.append((f"Privacy and utility against {attack}; the upper left is better.", svg(figure)))
    return found


def _compositions(material: Material) -> list[Drawing]:
    """True and inferred class shares, a panel per client of the first seed and round, for the first settings."""
    found = []
    keys = [name for name in setting_columns(material.rows) if name != SETTING + "round"]
    for _, inside in list(material.rows.groupby(keys, sort=False, dropna=False))[:_MOST_SETTINGS]:
        first = inside[(inside["seed"] == inside["seed"].iloc[0]) & (inside["round"] == inside["round"].iloc[0])]
        kept = first[first["role"].isin(ATTACKS)]
        kept = first if kept.empty else kept
        kept = kept[kept["attack"].isin(kept["attack"].unique()[:_MOST_ATTACKS])]
        kept = kept[kept["victim"].isin(kept["victim"].unique()[:_MOST_CLIENTS])]
        clients = {victim: f"client {number}" for number, victim in enumerate(kept["victim"].unique(), start=1)}
        kept = kept.assign(client=kept["victim"].map(clients), x=kept["class"].map(str)).reset_index(drop=True)
        truth = kept.drop_duplicates(["client", "class"])
        plot = so.Plot(kept, x="x").facet(col="client", wrap=5)
        plot = plot.add(so.Bar(color=".75", edgewidth=0), data=truth, y="true")
        plot = plot.add(so.Dot(pointsize=3), so.Dodge(), y="inferred", color="attack")
        plot = plot.add(so.Range(linewidth=1), so.Dodge(), ymin="low", ymax="high", color="attack", legend=False)
        plot = plot.label(x="class", y="share", color="").share(y=True)
        setting = described_settings(kept.head(1), {name.removeprefix(SETTING) for name in setting_columns(kept)})[0]
        caption = f"True (bars) and inferred class shares of every client with 95% intervals: {setting}."
        found.append((caption, svg(drawn(plot, 2.6 * min(5, len(clients)) + 1.5, 0.6 + 1.9 * -(-len(clients) // 5)))))
    return found


FIGURES: list[Figure] = [
    Figure(table="profiles", draw=_compositions),
    Figure(table="roc", draw=_roc),
    Figure(table="results", axis=True, draw=below_bounds),
    Figure(table="results", axis=True, draw=against),
    Figure(table="results", axis=False, draw=_by_attack),
    Figure(table="scores", draw=_distribution),
    Figure(table="results", metric="times-chance", columns=(_MITIGATION, _AMOUNT), draw=_privacy_and_utility),
    Figure(table="results", metric="auc", columns=(DEFENCE,), draw=privacy_and_utility),
    Figure(table="results", metric="auc", columns=(MANIPULATION,), draw=detectability),
]
"""Figures of every report, in order."""
