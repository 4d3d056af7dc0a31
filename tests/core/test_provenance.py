"""The command is as typed; what is published of it names no folder of a machine."""

import shlex
from pathlib import Path

import pytest

from fedleak.core.provenance import command, published, without_paths
from tests.places import ROOT

ABSOLUTE = str(Path("/").joinpath("somewhere", "deltas"))


def test_the_command_is_as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ["fedleak/.venv/bin/python", "fedleak/attack.py", "audit", ABSOLUTE, "--gate", "l1=0.5"]
    monkeypatch.setattr("sys.orig_argv", typed)
    assert shlex.split(command()) == typed


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        (f".venv/bin/python attack.py audit {ABSOLUTE}", "python attack.py audit ..."),
        (f"python -W ignore {ROOT}/attack.py audit runs/a", "python attack.py audit runs/a"),
        ("python attack.py reproduce table.yaml", "python attack.py reproduce table.yaml"),
        (f"{ABSOLUTE}/python {ABSOLUTE}/bin/fedleak audit runs/a", "fedleak audit runs/a"),
        (f"{ABSOLUTE}/python -m fedleak audit {ABSOLUTE}", "fedleak audit ..."),
        (f"python {ABSOLUTE}/fedleak-train fit --config a.yaml", "fedleak-train fit --config a.yaml"),
        (f"fedleak audit {ABSOLUTE}/fedleak --out runs/fedleak", "fedleak audit ... --out runs/fedleak"),
        (f"{ABSOLUTE} x", "... x"),
    ],
)
def test_what_is_published_names_no_folder_of_a_machine(typed: str, kept: str) -> None:
    assert published(typed) == kept


HOSTILE = {
    "--deltas=/srv/jane.doe/patients/deltas": "--deltas=...",
    "--pw hunter": "--pw ...",
    "--to.headers.x-pass=hunter": "--to.headers.x-pass=...",
    "--epochs.passes 3": "--epochs.passes 3",
    "--learner.path=/srv/jane.doe": "--learner.path=...",
    "-o=/srv/jane.doe": "-o=...",
    "--out /srv/jane.doe": "--out ...",
    "../../jane.doe/deltas": "...",
    "runs/../../jane.doe": "...",
    f"{ROOT}/../jane.doe": "...",
    "~/jane.doe": "...",
    "~jane.doe": "...",
    "'Jane Doe'": "...",
    "jane.doe@hospital.example": "...",
    "C:\\\\Users\\\\jane.doe": "...",
    "file:/srv/jane.doe": "...",
    "s3://KEY:SECRET@bucket/jane": "...",
    "--to.endpoint https://jane:pw@host:4318/?token=abc": "--to.endpoint ...",
    "--to.sign id_jane": "--to.sign ...",
    "--to.token=1": "--to.token=...",
    "--set data.root=/srv/jane.doe": "--set data.root=...",
    "--set a=b=/srv/jane.doe": "--set a=b=...",
    "--set service.api_key=123": "--set service.api_key=...",
    "AKIAIOSFODNN7EXAMPLE": "...",
    "--x 0123456789abcdef0123456789abcdef": "--x ...",
    """--messages '{"path": "/srv/jane.doe"}'""": "--messages ...",
    """--messages '{"/srv/jane.doe": 1}'""": "--messages ...",
    """--messages '{"token": 1}'""": "--messages ...",
    "--messages [/srv/jane.doe]": "--messages ...",
    "$(cat /etc/passwd)": "... ...",
    "'unclosed": None,
    # What stays: it is needed to repeat the command, and names nothing of a machine.
    "--messages '{\"rounds\": [0, 1]}'": "--messages '{\"rounds\": [0, 1]}'",
    "--rounds [0,1] --seed=3": "--rounds '[0,1]' --seed=3",
    "--gate record-membership/auc=0.6 --gate l1=0.5": "--gate record-membership/auc=0.6 --gate l1=0.5",
    "--attack my_package.MyAttack --attack.steps 1e-3": "--attack my_package.MyAttack --attack.steps 1e-3",
    "--set model.local.epochs=5": "--set model.local.epochs=5",
    "--what-if configs/what_if.yaml": "--what-if configs/what_if.yaml",
    f"--deltas {ROOT}/runs/demo": "--deltas runs/demo",
}


@pytest.mark.parametrize(("typed", "kept"), HOSTILE.items())
def test_no_argument_names_a_person_a_place_or_a_key(typed: str, kept: str | None) -> None:
    whole = published(f"python attack.py audit {typed}")
    assert whole == ("..." if kept is None else f"python attack.py audit {kept}")
    assert published(whole) == whole


def test_paths_in_a_sentence_are_left_out() -> None:
    said = "expected a file; found '/srv/jane doe/a.yaml', ~/b, ../c and http://x/?t=1. See docs/a.md or auc=0.6."
    assert without_paths(said) == "expected a file; found '...', ..., ... and ... See docs/a.md or auc=0.6."
