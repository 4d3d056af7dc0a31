"""The pages under docs: every command in them is one that its program takes, every file they name is there."""

import re
from pathlib import Path

import pytest
from click import NoSuchOption

from protocol.errors import InputError
from tests.command_lines import check
from tests.places import ROOT

PAGES = [ROOT / "docs/sweeps.md", ROOT / "docs/clusters.md", ROOT / "docs/tables.md"]
_BLOCK = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:configs|docs)/[\w./]+\.\w+")


def commands(page: Path) -> list[str]:
    return [line for block in _BLOCK.findall(page.read_text(encoding="utf-8")) for line in block.splitlines() if line]


@pytest.mark.parametrize(
    "command", [pytest.param(line, id=f"{page.stem}: {line[:60]}") for page in PAGES for line in commands(page)]
)
def test_a_command(command: str) -> None:
    check(command)


@pytest.mark.parametrize(
    ("command", "kind", "message"),
    [
        ("python train.py fit --config configs/train/fncf_synthetic.yaml --trainer.x 1", AssertionError, "trainer.x"),
        ("python attack.py audit --nonsense 1", InputError, "--nonsense"),
        ("torchrun --nonsense 2 train.py fit", SystemExit, "2"),
        ("NONSENSE=1 sbatch configs/cluster/train.sbatch", AssertionError, "train.sbatch knows no NONSENSE"),
        ("wandb sweep --nonsense x", NoSuchOption, "--nonsense"),
        ("rm x", AssertionError, "no program of ours: rm"),
    ],
)
def test_a_wrong_command_is_found(command: str, kind: type[BaseException], message: str) -> None:
    with pytest.raises(kind, match=message):
        check(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_is_named_is_there(page: Path) -> None:
    named = set(_FILE.findall(page.read_text(encoding="utf-8")))
    assert len(named) > 2
    assert {name for name in named if not (ROOT / name).is_file()} == set()
    linked = re.findall(r"\]\(([\w./]+)\)", page.read_text(encoding="utf-8"))
    assert all((page.parent / name).is_file() for name in linked)
