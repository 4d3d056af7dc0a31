"""Documents name only what is there."""

import re
from pathlib import Path

import pytest

from tests.test_project import ROOT, tracked

DOCUMENTS = [path for path in tracked() if path.suffix == ".md"]
FOLDERS = "configs|docs|datamodules|modules|attacks|callbacks|tests"
PLACES = re.compile(rf"(?:{FOLDERS})/[\w./-]+\.(?:yaml|yml|md|py|sbatch)\b")
TABLES = re.compile(r"`((?:raifle|deanon|pac|decaf)_\w+?)(?:\.yaml)?`")


def missing(text: str) -> set[str]:
    """Files and tables that a text names and that are not there."""
    places = {place for place in PLACES.findall(text) if "NAME" not in place and not (ROOT / place).is_file()}
    tables = {name for name in TABLES.findall(text) if not (ROOT / "configs" / "paper" / f"{name}.yaml").is_file()}
    return places | tables


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_is_there(path: Path) -> None:
    assert missing(path.read_text(encoding="utf-8")) == set()


def test_what_is_not_there_is_found() -> None:
    assert missing("`raifle_table99`, configs/paper/none.yaml, `raifle_table5`") == {
        *("raifle_table99", "configs/paper/none.yaml")
    }
