"""Figures with a curve per attack: mean ROC curves, and reliability."""

from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from fedleak.evaluation.result_names import ANSWERS, ATTACKS, PROBABILITY, TRUE
from fedleak.reports.figures.figure_data import DrawnFigure, FigureData, legend_right, styled
from fedleak.reports.figures.line_styles import LineStyle

_MOST_LINES = 14
"""Largest number of curves in a figure."""
_FEWEST = 20
"""Answers in a bin below which its share is left out."""
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))
"""Line style of each setting."""
_WIDEST = 5.0
"""Width in points of the line of the first attack: a curve below another stays visible."""
_THINNEST = 1.6
"""The same of the last attack, and of baselines."""


def roc(data: FigureData) -> list[DrawnFigure]:
    """Mean ROC curves with the area below them; `rows` have the ``attack`` and the ``setting`` of each label."""
    rows = data.rows
    if rows["label"].nunique() > _MOST_LINES:
        return []
    several = rows["setting"].nunique() > 1
    curves = []
    for (attack, setting), points in rows.groupby(["attack", "setting"], sort=False):
        # The area by trapezoids: the mean of two neighbouring true-positive rates times their distance.
        area = float((points["tpr"].rolling(2).mean() * points["fpr"].diff()).sum())
        name = f"{attack}, {setting}" if several else str(attack)
        curve = _Curve(
            attack=str(attack),
            setting=str(setting),
            label=f"{name}: {area:.3f}",
            leak=area,
            x=points["fpr"].tolist(),
            y=points["tpr"].tolist(),
        )
        curves.append(curve)
    figure = _drawn(data, curves)
    axes = figure.axes[0]
    axes.plot([0, 1], [0, 1], color=".5", ls=":")
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate", aspect="equal")
    caption = "Mean ROC curve over clients, with the area below it; the dotted line is guessing."
    return [DrawnFigure(caption, figure=figure, name="roc")]


def reliability(data: FigureData) -> list[DrawnFigure]:
    """Share of true answers by the probability that an attack gives them, in bins."""
    rows = data.rows[data.rows[PROBABILITY].notna() & (data.rows[ANSWERS] >= _FEWEST)]
    if rows.empty or rows["label"].nunique() > _MOST_LINES:
        return []
    figure, grid = styled(5.5, 4.0)
    axes = grid[0][0]
    axes.plot([0, 1], [0, 1], color=".5", ls=":")
    for label, bins in rows.groupby("label", sort=False):
        colour = data.colours.get(bins["attack"].iloc[0])
        axes.plot(bins[PROBABILITY], bins[TRUE], marker="o", markersize=4, color=colour, label=str(label))
    axes.set(xlabel="probability given to an answer", ylabel="share of answers that are true", aspect="equal")
    legend_right(axes)
    caption = (
        "Reliability of attacks with priors: on the dotted line, answers of probability p are true in a share p of the"
        f" cases. Bins of fewer than {_FEWEST} answers are left out."
    )
    return [DrawnFigure(caption, figure=figure, name="reliability")]


@dataclass(frozen=True)
class _Curve:
    attack: str
    setting: str
    label: str
    leak: float
    x: list[float]
    y: list[float]


def _drawn(data: FigureData, curves: list[_Curve]) -> Figure:
    """Figure of the curves, the attack with the largest leak widest and below the others, baselines thin."""
    figure, ((axes,),) = styled(6, 4)
    attacks = _attacks(data)
    settings = list(dict.fromkeys(curve.setting for curve in curves))
    count = sum(curve.attack in attacks for curve in curves)
    # Drawn first is below: attacks before baselines, those with a larger leak first.
    ordered = sorted(curves, key=lambda curve: (curve.attack not in attacks, -curve.leak))
    for position, curve in enumerate(ordered):
        style = data.styles.get(curve.attack, LineStyle("#000000", ()))
        # The first setting has the attack's own dashes, a further one those of its position.
        setting = settings.index(curve.setting)
        dashes: Any = style.linestyle
        if setting > 0:
            dashes = _DASHES[setting % len(_DASHES)]
        # Widths fall in equal steps from the first attack to the last.
        width = max(_WIDEST - (_WIDEST - _THINNEST) * position / max(count - 1, 1), _THINNEST)
        axes.plot(curve.x, curve.y, color=style.colour, ls=dashes, lw=width, label=curve.label)
    legend_right(axes)
    return figure


def _attacks(data: FigureData) -> set[str]:
    return set(data.results["attack"][data.results["role"].isin(ATTACKS)])
