"""Figures as SVG and PDF files, tables as CSV and LaTeX files."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from fedleak.core.io.files import write_whole
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.reports.tables import ReportTable

Format = Literal["svg", "pdf", "csv", "tex"]
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}


def write_files(
    directory: Path,
    formats: Sequence[Format],
    *,
    figures: Sequence[CaptionedFigure],
    tables: Sequence[ReportTable],
    numbers: Mapping[str, pd.DataFrame],
) -> list[Path]:
    """Writes figures and tables into ``figures/`` and ``tables/`` of a folder; returns the paths.

    Figures become ``svg`` and ``pdf``, numbers ``csv``, a row per result, and tables ``tex``, LaTeX with booktabs. A
    figure that was read from the file of a run has no ``pdf``, see `CaptionedFigure.of_stranger`.
    """
    # All contents are made before the first file is written: a table that fails leaves no half of the files.
    content: dict[str, bytes] = {}
    figure_names = _distinct([drawing.name for drawing in figures])
    for name, drawing in zip(figure_names, figures, strict=True):
        for kind in drawing.kinds:
            if kind in formats:
                content[f"figures/{name}.{kind}"] = drawing.file(kind)
    if "csv" in formats:
        for name, rows in numbers.items():
            if len(rows):
                content[f"tables/{name}.csv"] = rows.map(_no_formula).to_csv(index=False).encode()
    if "tex" in formats:
        labels = _distinct([table.name for table in tables])
        for label, table in zip(labels, tables, strict=True):
            content[f"tables/{label}.tex"] = latex(table, label).encode()
    for name, content_of_file in content.items():
        write_whole(directory / name, content_of_file)
    return [directory / name for name in content]


def latex(table: ReportTable, label: str) -> str:
    """LaTeX of a table, with rules of booktabs and baselines below a rule of their own."""
    texts = table.texts.map(_escaped).rename(columns=_escaped)
    columns = "".join("r" if numeric else "l" for numeric in table.numeric)
    source = texts.style.hide(axis="index").to_latex(
        hrules=True,
        column_format=columns,
        caption=_escaped(table.caption),
        label=f"tab:{label}",
        position="t",
    )
    lines = source.splitlines(keepends=True)
    # A second rule after the last attack: the one \midrule of pandas ends the header.
    if table.attacks is not None and 0 < table.attacks < len(table.rows):
        lines.insert(lines.index("\\midrule\n") + 1 + table.attacks, "\\midrule\n")
    return "% \\usepackage{booktabs}\n" + "".join(lines)


def _no_formula(value: object) -> object:
    """A text that a spreadsheet would calculate, behind an apostrophe; results may be those of somebody else."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")  # the writer does not quote it, and readers end a row there
    if value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{text}"
    return text


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that are safe for files, with numbers at repeated ones."""
    distinct = []
    counts: dict[str, int] = {}
    for name in names:
        plain = re.sub(r"[^a-z0-9.@-]+", "-", name.lower()).strip("-.")[:80] or "figure"
        counts[plain] = counts.get(plain, 0) + 1
        if counts[plain] > 1:
            distinct.append(f"{plain}-{counts[plain]}")
        else:
            distinct.append(plain)
    return distinct
