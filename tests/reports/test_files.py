"""Figures and tables are files that other programs read."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.reports.figures.figure_data import DrawnFigure
from fedleak.reports.files import Format, latex, write_files
from fedleak.reports.tables import ReportTable

ROWS = pd.DataFrame({"attack": ["a_b", "c&d"], "auc": ["0.9", "0.5"], "text": ["50% ± 1", "{~^\\}"]})
TABLE = ReportTable("auc", "95% of $ signs", ROWS, attacks=1)


@pytest.mark.parametrize(
    ("formats", "names"),
    [
        ((), []),
        (("svg", "pdf"), ["figures/roc.pdf", "figures/roc-2.pdf", "figures/roc.svg", "figures/roc-2.svg"]),
        (("csv",), ["tables/results.csv"]),
        (("tex",), ["tables/auc.tex"]),
    ],
)
def test_each_format_has_its_files(tmp_path: Path, formats: tuple[Format, ...], names: list[str]) -> None:
    figures = [DrawnFigure("c", figure=Figure(), name="roc"), DrawnFigure("c", figure=Figure(), name="ROC")]
    numbers = {"results": pd.DataFrame({"attack": ["a"], "mean": [0.123456789]})}
    written = write_files(tmp_path, formats, figures=figures, tables=[TABLE], numbers=numbers)
    assert {str(path.relative_to(tmp_path)) for path in written} == set(names)
    assert all(path.stat().st_size for path in written)
    if "csv" in formats:
        assert pd.read_csv(written[0])["mean"].tolist() == [0.123456789]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_holds_no_formula_of_a_stranger(tmp_path: Path, start: str) -> None:
    numbers = {"results": pd.DataFrame({"attack": [f"{start}HYPERLINK(1)", "plain"], "mean": [-0.5, 1.0]})}
    written = write_files(tmp_path, ["csv"], figures=[], tables=[], numbers=numbers)
    read = pd.read_csv(written[0])
    assert read["attack"].tolist() == [f"'{start}HYPERLINK(1)".replace("\r", " "), "plain"]
    assert read["mean"].tolist() == [-0.5, 1.0]


def test_names_of_strangers_stay_in_the_folder(tmp_path: Path) -> None:
    figures = [
        CaptionedFigure("c", files={"svg": b"<svg>"}, name=name) for name in ("../../x", "/etc/x", "...", "a b/ü")
    ]
    written = write_files(tmp_path, ["svg"], figures=figures, tables=[], numbers={})
    assert [path.parent for path in written] == [tmp_path / "figures"] * 4
    assert len(set(written)) == 4


def test_latex_is_escaped_aligned_and_has_a_rule_above_baselines() -> None:
    text = latex(TABLE, "auc")
    assert r"\begin{tabular}{lrl}" in text
    assert r"a\_b & 0.9 & 50\% $\pm$ 1 \\" + "\n\\midrule\n" + r"c\&d & 0.5 &" in text
    assert r"\{\textasciitilde{}\textasciicircum{}\textbackslash{}\} \\" in text
    assert r"\caption{95\% of \$ signs}" in text
    assert r"\label{tab:auc}" in text
    assert text.count("\\midrule") == 2
