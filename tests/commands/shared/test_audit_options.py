"""Options of an audit that exclude each other, and what they say of its time and its folder."""

from pathlib import Path
from typing import Any

import pytest

from fedleak.commands.shared.audit_options import AuditOptions
from fedleak.core.errors import InputError


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"control": "noise", "gate": ["auc=0.6"]}, "--control without --gate"),
        ({"control": "noise", "gate_by_name": {"auc": 0.6}}, "--control without --gate"),
        ({"control": "noise", "reference": "before"}, "--control without --gate"),
        ({"control": "noise", "what_if": "file"}, "--what-if without --control"),
        ({"part": "0/2", "what_if": "file"}, "--part with options of the attacks only"),
        ({"part": "0/2", "formats": ["svg"]}, "--part with options of the attacks only"),
        ({"minutes": 3.0, "part": "0/2"}, "--minutes without"),
        ({"minutes": 3.0, "what_if": "file"}, "--minutes without"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        AuditOptions("d", **options)


def test_an_audit_has_a_time_and_a_folder(tmp_path: Path) -> None:
    deltas = str(tmp_path / "deltas")
    assert (AuditOptions(deltas).time, AuditOptions(deltas).results) == (30.0, tmp_path)
    assert AuditOptions(deltas, slow=True).time is None
    assert AuditOptions(deltas, slow=True, minutes=3.0).time == 3.0
    assert AuditOptions(deltas, what_if="file").results == tmp_path / "what-if"
    assert AuditOptions(deltas, control="noise").results == tmp_path / "control-noise"
    assert AuditOptions(deltas, control="noise", out="o").results == Path("o")
