"""The command is as typed; what is published of it names no folder of a machine."""

import shlex
from pathlib import Path

import pytest

from protocol.provenance import CHECKOUT, command, published

ABSOLUTE = str(Path("/").joinpath("somewhere", "deltas"))


def test_the_command_is_as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ["fedleak/.venv/bin/python", "fedleak/attack.py", "audit", "--deltas", ABSOLUTE, "--gate", "l1=0.5"]
    monkeypatch.setattr("sys.orig_argv", typed)
    assert shlex.split(command()) == typed


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        (f".venv/bin/python attack.py audit --deltas {ABSOLUTE}", "python attack.py audit --deltas deltas"),
        (f"python -W ignore {CHECKOUT}/attack.py audit --deltas runs/a", "python attack.py audit --deltas runs/a"),
        ("python attack.py reproduce table.yaml", "python attack.py reproduce table.yaml"),
        (f"{ABSOLUTE} x", "deltas x"),
    ],
)
def test_what_is_published_names_no_folder_of_a_machine(typed: str, kept: str) -> None:
    assert published(typed) == kept
