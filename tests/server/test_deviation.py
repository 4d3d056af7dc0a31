"""Deviations describe themselves, and nothing lists them."""

import sys
from pathlib import Path

import pytest

from fedleak import server
from fedleak.core.class_paths import classes_in
from fedleak.core.errors import InputError
from fedleak.server.deviation import Deviation, Notice
from fedleak.server.feature_manipulation import FeatureManipulation

NEW = """
from dataclasses import dataclass

from fedleak.server.deviation import Deviation


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
        checks = [check for notice in kind.noticed for check in notice.checks]
        assert all(check.__module__.startswith("fedleak.defenses.") for check in checks)


def test_deviation_in_a_new_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waiting_server.py").write_text(NEW)
    monkeypatch.setattr(server, "__path__", [*server.__path__, str(tmp_path)])
    found = {kind.__name__ for kind in classes_in(server, Deviation)}
    sys.modules.pop("fedleak.server.waiting_server")
    assert {"Waiting", "Probing", "NoiseInjection"} <= found
