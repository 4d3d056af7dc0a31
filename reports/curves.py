"""Figures with a curve per attack: mean ROC curves, and every client's value in ascending order."""

import pandas as pd
from matplotlib.figure import Figure

from evaluation.drawing import Drawing
from evaluation.scores import differing
from reports.drawing import Material, legend_right, of_data, styled, with_guessing
from reports.looks import Look
from reports.run import ATTACKS
from reports.tables import described_settings

_MOST_LINES = 14
"""Largest number of curves in a figure."""
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))
"""Line style of each setting."""
_WIDEST, _THINNEST = 5.0, 1.6
"""Line widths in points of the first and the last curve: a curve below another stays visible."""


def roc(material: Material) -> list[Drawing]:
    """Mean ROC curves with the area below them."""
    rows = material.rows
    if rows["label"].nunique() > _MOST_LINES:
        return []
    figure = _canvas()
    axes = figure.axes[0]
    named = rows["label"].str.partition(" (")
    rows = rows.assign(attack=named[0], setting=named[2].str.removesuffix(")"))
    curves = [(label, own) for label, own in rows.groupby("label", sort=False)]
    areas = {label: float(own["tpr"].add(own["tpr"].shift()).mul(own["fpr"].diff()).sum() / 2) for label, own in curves}
    curves = sorted(curves, key=lambda one: (one[1]["attack"].iloc[0] in _attacks(material), -areas[one[0]]))
    settings = list(dict.fromkeys(rows["setting"]))
    for number, (label, own) in enumerate(curves):
        shown = label if len(settings) > 1 else own["attack"].iloc[0]
        style = _style(material, own["attack"].iloc[0], settings.index(own["setting"].iloc[0]))
        axes.plot(own["fpr"], own["tpr"], lw=_width(number, len(curves)), label=f"{shown}: {areas[label]:.3f}", **style)
    axes.plot([0, 1], [0, 1], color=".5", ls=":")
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate", aspect="equal")
    legend_right(axes)
    caption = "Mean ROC curve over clients, with the area below it; the dotted line is guessing."
    return [Drawing(caption, figure, name="roc")]


def distribution(material: Material) -> list[Drawing]:
    """Empirical distribution of the score over clients."""
    rows = material.rows[material.rows["value"].notna()]
    keys = differing(rows)
    if keys:  # with several settings, attacks only
        rows = rows[rows["attack"].isin(_attacks(material))]
    rows = rows.assign(setting=described_settings(rows, keys))
    lines = list(rows.groupby(["attack", "setting"], sort=False))
    # Binary scores have no distribution worth drawing.
    if rows.empty or len(lines) > _MOST_LINES or rows["value"].isin([0.0, 1.0]).all():
        return []
    figure = _canvas()
    axes = figure.axes[0]
    settings = list(dict.fromkeys(rows["setting"]))
    lines.sort(key=lambda one: one[0][0] in _attacks(material))
    for number, ((attack, setting), own) in enumerate(lines):
        values = own["value"].sort_values()
        share = pd.Series(range(1, len(values) + 1)) / len(values)
        label = ", ".join(part for part in (attack, setting) if part)
        style = _style(material, attack, settings.index(setting))
        ends = [0.0, *share], [values.iloc[0], *values]
        axes.plot(*ends, drawstyle="steps-pre", lw=_width(number, len(lines)), label=label, **style)
    axes.set(xlabel="share of clients", ylabel=material.metric)
    legend_right(axes)
    caption = f"{of_data(rows)}{material.metric} of each client, in ascending order."
    return [Drawing(caption, with_guessing(figure, material.metric), name=f"{material.metric}-by-client")]


def _canvas() -> Figure:
    with styled():
        figure = Figure(figsize=(6, 4), layout="constrained")
        figure.subplots()
    return figure


def _style(material: Material, attack: str, setting: int) -> dict[str, object]:
    """Colour of the attack, and dashes of the attack, or of the setting if there are several."""
    look = material.looks.get(attack, Look("#000000", ()))
    return {"color": look.colour, "ls": _DASHES[setting % len(_DASHES)] if setting else look.style}


def _width(number: int, count: int) -> float:
    return _WIDEST - (_WIDEST - _THINNEST) * number / max(count - 1, 1)


def _attacks(material: Material) -> set[str]:
    return set(material.results["attack"][material.results["role"].isin(ATTACKS)])
