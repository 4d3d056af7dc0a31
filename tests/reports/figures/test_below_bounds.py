"""The figure of attacks below a bound shows every line, and takes the place of the plain one."""

from fedleak.evaluation.runner import Evaluation
from fedleak.reports.figures.below_bounds import below_bounds, bounded
from fedleak.reports.figures.by_setting import by_setting
from fedleak.reports.figures.figure_data import FigureData
from fedleak.reports.figures.line_styles import line_styles
from fedleak.reports.figures.report_figures import report_figures
from tests.reports.toys import cell, table

ROWS = [
    cell(name, mean - 0.2 * (epsilon == 20), epsilon=epsilon, manipulation=manipulation)
    for manipulation in ("none", "noise")
    for epsilon in (20, "inf")
    for name, mean in (("bound", 0.9), ("bound-cascade", 0.95), ("genie", 0.85), ("raifle", 0.8), ("chance", 0.5))
]


def test_a_panel_per_manipulation_with_every_line() -> None:
    results = table(*ROWS)
    found = report_figures(Evaluation(), results, ("auc",))
    ((caption, svg),) = ((one.caption, one.svg) for one in found if "No attack can be" in one.caption)
    assert caption.startswith("d: auc against epsilon")
    expected = ("manipulation none", "manipulation noise", "no attack", "bound-cascade", "genie", "raifle", "chance")
    assert all(f">{text}<" in svg for text in (*expected, "20", "inf"))
    assert by_setting(FigureData(results, "auc", results, line_styles(results))) == []


def test_without_a_bound_nothing_is_drawn() -> None:
    results = table(*(row for row in ROWS if row["attack"] != "bound"))
    assert not bounded(results)
    assert below_bounds(FigureData(results, "auc", results, line_styles(results))) == []
    assert len(by_setting(FigureData(results, "auc", results, line_styles(results)))) == 1
