"""Publications stand once, under a key that is used, and docstrings name them by it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedleak.core.bibliography import BIBLIOGRAPHY, key_of, publications, whole_reference, with_whole_references
from fedleak.evaluation.registry import REGISTRY
from tests.places import ROOT

FOLDERS = ("attacks", "callbacks", "datamodules", "fedleak", "guard", "modules", "recorder")
KEY = re.compile(r"\[([A-Z][A-Za-z]+\d\d[a-z]?)\]")


def docstrings() -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    yield path, ast.get_docstring(node) or ""


def references_in(docstring: str) -> str:
    """The section of a docstring that names publications."""
    section = re.search(r"^References:\n((?:    .*\n?)+)", docstring, re.MULTILINE)
    if section is None:
        return ""
    return section.group(1)


@pytest.mark.inventory
def test_every_key_has_a_publication_and_every_publication_is_named() -> None:
    named = {key for _, text in docstrings() for key in KEY.findall(text)}
    named |= {key_of(reference) for kind in REGISTRY.values() for reference in kind.references}
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "fedleak" / "server").glob("*.py"))
    of_manipulations = {key for key in BIBLIOGRAPHY if f'"{key}' in sources}
    assert named | of_manipulations >= set(BIBLIOGRAPHY)
    assert {key for key in named if re.fullmatch(r"[A-Z][A-Za-z]+\d\d[a-z]?", key)} <= set(BIBLIOGRAPHY)


@pytest.mark.inventory
def test_references_give_no_title_that_the_bibliography_has() -> None:
    titles = re.findall(r'"([^"]+)"', "\n".join(BIBLIOGRAPHY.values()))
    repeated = [
        f"{path}: {title}" for path, text in docstrings() for title in titles if f'"{title}"' in references_in(text)
    ]
    assert not repeated


def test_a_reference_is_printed_whole_with_its_place() -> None:
    whole = whole_reference("Dai24, Algorithm 1")
    assert whole.startswith("Dai, Zhou and Fu")
    assert whole.endswith("arXiv:2405.15316, Algorithm 1")
    assert with_whole_references("See [Dai24], Algorithm 1.") == f"See {whole}."


def test_what_is_no_key_stays_as_it_is() -> None:
    assert whole_reference("A paper of a user, section 2") == "A paper of a user, section 2"
    assert with_whole_references("rows [Q1] of [Nobody99]") == "rows [Q1] of [Nobody99]"
    assert publications(["A paper of a user", "Dai24, Algorithm 1", "Dai24, table 2"]) == {
        "Dai24": BIBLIOGRAPHY["Dai24"]
    }
