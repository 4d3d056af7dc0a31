"""Figures as SVG and PDF files, tables as CSV and LaTeX files."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from fedleak.core.io.files import write_whole
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.reports.tables import Table

Format = Literal["svg", "pdf", "csv", "tex"]
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}


def write_files(
    directory: Path,
    formats: Sequence[Format],
    *,
    figures: Sequence[CaptionedFigure],
    tables: Sequence[Table],
    numbers: Mapping[str, pd.DataFrame],
) -> list[Path]:
    """Writes figures and tables into ``figures/`` and ``tables/`` of a folder; returns the paths.

    Figures become ``svg`` and ``pdf``, numbers ``csv``, a row per result, and tables ``tex``, LaTeX with booktabs. A
    figure that was read from the file of a run has no ``pdf``, see `CaptionedFigure.of_stranger`.
    """
    names = _distinct([drawing.name for drawing in figures])
    content = {
        f"figures/{name}.{kind}": drawing.file(kind)
        for name, drawing in zip(names, figures, strict=True)
        for kind in drawing.kinds
        if kind in formats
    }
    if "csv" in formats:
        content |= {
            f"tables/{name}.csv": rows.map(_no_formula).to_csv(index=False).encode()
            for name, rows in numbers.items()
            if len(rows)
        }
    if "tex" in formats:
        labels = zip(_distinct([table.name for table in tables]), tables, strict=True)
        content |= {f"tables/{name}.tex": latex(table, name).encode() for name, table in labels}
    for name, content_of_file in content.items():
        write_whole(directory / name, content_of_file)
    return [directory / name for name in content]


def latex(table: Table, label: str) -> str:
    """LaTeX of a table, with rules of booktabs and baselines below a rule of their own."""
    texts = table.texts.map(_escaped).rename(columns=_escaped)
    columns = "".join("r" if numeric else "l" for numeric in table.numeric)
    whole = texts.style.hide(axis="index").to_latex(
        hrules=True, column_format=columns, caption=_escaped(table.caption), label=f"tab:{label}", position="t"
    )
    lines = whole.splitlines(keepends=True)
    if table.attacks is not None and 0 < table.attacks < len(table.rows):
        lines.insert(lines.index("\\midrule\n") + 1 + table.attacks, "\\midrule\n")
    return "% \\usepackage{booktabs}\n" + "".join(lines)


def _no_formula(value: object) -> object:
    """A text that a spreadsheet would calculate, behind an apostrophe; results may be those of somebody else."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")  # the writer does not quote it, and readers end a row there
    return f"'{text}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that are safe for files, with numbers at repeated ones."""
    plain = [re.sub(r"[^a-z0-9.@-]+", "-", name.lower()).strip("-.")[:80] or "figure" for name in names]
    counts = [plain[: at + 1].count(name) for at, name in enumerate(plain)]
    return [name if count == 1 else f"{name}-{count}" for name, count in zip(plain, counts, strict=True)]
