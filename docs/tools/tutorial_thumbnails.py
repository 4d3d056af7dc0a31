"""Thumbnails of the tutorials: a figure of the first audit that a tutorial makes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedleak.evaluation.auditing import AuditResult
from fedleak.reports.notebook import show


def audit_figure(_block: object, variables: Mapping[str, Any], _gallery: object, **_: object) -> str:
    """Image scraper of Sphinx-Gallery: draws the first audit among a tutorial's variables, once, and shows nothing.

    The page of the tutorial has its tables and figures already; Sphinx-Gallery takes the first image for the thumbnail.
    """
    paths: Iterator[str] = variables["image_path_iterator"]
    names = variables["example_globals"]
    audits = [value for value in names.values() if isinstance(value, AuditResult)]
    if not audits or "_thumbnail" in names:
        return ""
    figures = show(audits[0]).figures
    if figures:
        names["_thumbnail"] = True
        Path(next(paths)).with_suffix(".svg").write_text(figures[0].svg, encoding="utf-8")
    return ""
