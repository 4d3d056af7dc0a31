"""Deviations describe themselves, and nothing lists them."""

import sys
from pathlib import Path

import pytest

import server
from protocol.class_paths import classes_in
from protocol.errors import InputError
from server.deviation import Deviation, Notice
from server.feature_manipulation import FeatureManipulation

NEW = """
from dataclasses import dataclass

from server.deviation import Deviation


@dataclass(frozen=True)
class Waiting(Deviation):
    \"\"\"Waits.\"\"\"

    name = "waiting"
    part = "selects"
    does = "waits"
    noticed = ()
"""


def test_deviation_without_a_description_is_refused() -> None:
    def features(self: FeatureManipulation, *given: object, **options: object) -> None: ...

    with pytest.raises(InputError, match="does, noticed in"):
        type("Silent", (FeatureManipulation,), {"name": "silent", "features": features})
    assert Deviation.references == ()


def test_every_notice_names_checks_of_the_clients() -> None:
    for kind in classes_in(server, Deviation):
        assert all(isinstance(notice, Notice) for notice in kind.noticed)
        assert all(check.__module__.startswith("defenses.") for notice in kind.noticed for check in notice.checks)


def test_deviation_in_a_new_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waiting_server.py").write_text(NEW)
    monkeypatch.setattr(server, "__path__", [*server.__path__, str(tmp_path)])
    found = {kind.__name__ for kind in classes_in(server, Deviation)}
    sys.modules.pop("server.waiting_server")
    assert {"Waiting", "Probing", "NoiseInjection"} <= found
