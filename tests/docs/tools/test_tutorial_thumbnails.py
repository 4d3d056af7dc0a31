"""Thumbnails of tutorials: the first audit's figure, once; none without an audit."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from docs.tools import tutorial_thumbnails
from fedleak.evaluation.auditing import AuditResult


def test_the_first_audit_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = SimpleNamespace(figures=[SimpleNamespace(svg="<svg>first</svg>"), SimpleNamespace(svg="<svg/>")])
    monkeypatch.setattr(tutorial_thumbnails, "show", lambda _: drawn)
    paths = iter([str(tmp_path / "one_001.png"), str(tmp_path / "one_002.png")])
    names: dict[str, Any] = {"number": 3}
    variables = {"image_path_iterator": paths, "example_globals": names}
    assert tutorial_thumbnails.audit_figure(None, variables, None) == ""
    assert not list(tmp_path.iterdir())
    names["found"] = AuditResult.__new__(AuditResult)
    for _ in range(2):
        assert tutorial_thumbnails.audit_figure(None, variables, None) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["one_001.svg"]
    assert (tmp_path / "one_001.svg").read_text() == "<svg>first</svg>"
