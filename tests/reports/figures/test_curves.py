"""Curves below others stay visible, and baselines look the same in every figure."""

import pandas as pd
from matplotlib.figure import Figure

from fedleak.core.estimates import ROC_GRID
from fedleak.evaluation.labels import Label
from fedleak.reports.figures.curves import roc
from fedleak.reports.figures.figure_data import DrawnFigure, FigureData
from fedleak.reports.figures.line_styles import line_styles
from tests.reports.toys import cell, table

RESULTS = table(cell("codebook", 0.9), cell("raifle", 0.9), cell("chance", 0.5))


def lines(drawing: DrawnFigure) -> dict[str, tuple[float, str]]:
    assert isinstance(drawing.figure, Figure)
    drawn = drawing.figure.axes[0].lines
    return {str(line.get_label()): (line.get_linewidth(), str(line.get_color())) for line in drawn}


def of(rows: pd.DataFrame) -> FigureData:
    return FigureData(rows, "", RESULTS, line_styles(RESULTS))


def test_equal_roc_curves_have_different_widths_and_their_areas() -> None:
    grid = ROC_GRID.tolist()
    curves = {"codebook": [1.0] * len(grid), "raifle": [1.0] * len(grid), "chance": grid}
    points = [pd.DataFrame({"label": name, "attack": name, "fpr": grid, "tpr": tpr}) for name, tpr in curves.items()]
    rows = pd.concat(points).assign(setting="")
    found = lines(roc(of(rows))[0])
    assert {"codebook: 1.000", "raifle: 1.000", "chance: 0.500"} <= set(found)
    assert found["codebook: 1.000"][0] != found["raifle: 1.000"][0]
    assert found["codebook: 1.000"][1] == line_styles(RESULTS)["codebook"].colour


def test_curves_of_several_settings_name_them() -> None:
    labels = [Label("codebook", "d, epsilon 1"), Label("codebook", "d, epsilon 2")]
    parts = [{"label": str(label), "attack": label.attack, "setting": label.setting} for label in labels]
    rows = pd.concat([pd.DataFrame({**part, "fpr": [0, 1], "tpr": [0, 1]}) for part in parts])
    assert {"codebook, d, epsilon 1: 0.500", "codebook, d, epsilon 2: 0.500"} <= set(lines(roc(of(rows))[0]))
    many = pd.concat([rows.assign(label=f"{number}") for number in range(15)])
    assert roc(of(many)) == []
