"""A few kills of what is cheap to kill; ``make kills`` has the many."""

import sys
from pathlib import Path

import pytest

from tests.fuzz.kills import Conversion, Defaults, Digits, Subject, Table, kill, main
from tests.fuzz.site_kills import GuardOfTwo

pytestmark = pytest.mark.integration


_SUBJECTS = [(Digits, 2), (Defaults, 2), (Table, 1), (Conversion, 2), (GuardOfTwo, 2)]


@pytest.mark.parametrize(("kind", "kills"), _SUBJECTS)
def test_what_is_killed_and_started_again_ends_as_if_nobody_had(
    kind: type[Subject], kills: int, tmp_path: Path
) -> None:
    report = kill(kind(tmp_path / "work"), kills, seed=0)
    assert report.kills == kills
    assert not report.problems
    assert not report.left


def test_a_difference_would_be_found(tmp_path: Path) -> None:
    class Forgetful(Conversion):
        """Its second run leaves something else."""

        def start(self, out: Path) -> int:
            status = super().start(out)
            if out.name != "whole":
                (out / "rounds/000000-0000.safetensors").write_bytes(b"")
            return status

    assert list(kill(Forgetful(tmp_path / "work"), 1, seed=0).problems) == [
        "another outcome than that of a run that nobody killed"
    ]


def test_words_in_no_name_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["kills", "--only", "launcher"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "three ranks" in capsys.readouterr().err
