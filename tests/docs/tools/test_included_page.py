"""The page of what is included has everything that the code has, and says what the code says."""

import re

import pytest

from docs.tools import included_page
from docs.tools.included_page import PAGE, definition, page
from fedleak import datamodules, defenses, server
from fedleak.core.class_paths import classes_in
from fedleak.defenses.base import Defense
from fedleak.evaluation.registry import REGISTRY
from fedleak.reports.exporters import NAMES
from fedleak.server.deviation import Deviation
from fedleak.tables.after import STEPS
from fedleak.training.data import FederatedDataModule


@pytest.fixture(scope="module")
def text() -> str:
    return page()


def named(text: str, heading: str) -> list[str]:
    """First cells of the tables of a section, without the lines of their headers."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def test_the_page_is_what_the_code_says(text: str) -> None:
    assert PAGE.read_text(encoding="utf-8") == text, "run make included"


@pytest.mark.inventory
def test_everything_of_each_kind_is_on_the_page(text: str) -> None:
    assert sorted(named(text, "Attacks")) == sorted(kind.name for kind in REGISTRY.values())
    assert {*named(text, "Defences")} >= {kind.__name__ for kind in classes_in(defenses, Defense)} | {"Guardrail"}
    assert named(text, "What a server may do") == [kind.__name__ for kind in classes_in(server, Deviation)]
    assert named(text, "Steps") == sorted(STEPS)
    assert named(text, "Exporters") == sorted(NAMES)
    read = [kind for kind in classes_in(datamodules, FederatedDataModule) if vars(kind).get("folders")]
    assert named(text, "Data sets") == [kind.__name__ for kind in read]


def test_learners_are_those_that_are_trained_and_no_mere_bases(text: str) -> None:
    learners = named(text, "Learners")
    assert {"FNCF", "FederatedClassifier", "Pretrained"} <= {*learners}
    assert {"NetworkLearner", "OnlineRanker", "TextLearner"} & {*learners} == set()


def test_an_attack_has_its_cost_and_its_needs(text: str) -> None:
    (row,) = re.findall(r"^\| `direction` \|.*$", text, re.MULTILINE)
    assert REGISTRY["recommendation/direction"].cost in row
    assert "`deltas:item_embedding.weight`" in row
    (row,) = re.findall(r"^\| `decaf-early` \|.*$", text, re.MULTILINE)
    assert "`decaf` with `solver = 'early-stopped'`" in row


def test_a_definition_is_the_first_paragraph_of_a_docstring() -> None:
    class Wide:
        """Sum of ``(V,)`` numbers
        over two lines.

        More.
        """

    assert definition(Wide) == "Sum of `(V,)` numbers over two lines."


def test_an_addition_is_on_the_page_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = next(iter(REGISTRY.values()))
    monkeypatch.setattr(
        included_page, "REGISTRY", {**REGISTRY, "interactions/new": type("New", (kind,), {"name": "new"})}
    )
    assert "| `new` |" in page()


def test_tables_are_rectangular(text: str) -> None:
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
