"""Every family of attacks has its names in public taxonomies, and every name has the form of its taxonomy."""

import dataclasses
import re

import pytest

from fedleak import server
from fedleak.core.class_paths import classes_in
from fedleak.core.history import History
from fedleak.core.taxonomy import KNOWLEDGE, MANIPULATING, TAXONOMY, Taxonomy, passive_letter
from fedleak.core.view import RoundView
from fedleak.evaluation.registry import REGISTRY, find
from fedleak.reports.statement.gaps import KNOWN_CLASSES
from fedleak.server.deviation import Deviation
from tests.places import ROOT

pytestmark = pytest.mark.inventory

FORMS = {
    "nist": r"NISTAML\.03\d",
    "atlas": r"AML\.T\d{4}(\.\d{3})?",
    "aisvs": r"v1\.0-C\d+\.\d+(\.\d+)?",
    "letter": r"[A-H]",
}
ENTRIES = {
    **TAXONOMY,
    **{name: kind.public_names() for name, kind in REGISTRY.items()},
    **{kind.__name__: kind.public_names() for kind in classes_in(server, Deviation)},
}


def test_every_family_and_class_of_attack_has_an_entry() -> None:
    declared = {kind.family for kind in REGISTRY.values() if kind.taxonomy is not None}
    families = {kind.family for kind in REGISTRY.values()} | set(KNOWN_CLASSES)
    assert families <= set(TAXONOMY) | declared, "set `taxonomy` in the class of an attack of a new family"
    assert set(TAXONOMY) <= families


def test_names_have_the_form_of_their_taxonomy() -> None:
    assert set(FORMS) == {one.name for one in dataclasses.fields(Taxonomy)}
    named = {(entry, field): getattr(names, field) for entry, names in ENTRIES.items() for field in FORMS}
    wrong = {
        place: name for place, name in named.items() if name is not None and not re.fullmatch(FORMS[place[1]], name)
    }
    assert wrong == {}


def test_page_explains_every_name() -> None:
    page = (ROOT / "docs" / "theory" / "taxonomies.md").read_text(encoding="utf-8")
    for name in {name for entry in TAXONOMY.values() for name in entry.names if len(name) > 1}:
        assert f"`{name}`" in page
    for letter in {*"ABCDEFGH"}:
        assert f"\n| {letter} | " in page


def test_letter_is_that_of_the_weakest_adversary_who_has_the_fields() -> None:
    fields = {one.name for kind in (RoundView, History) for one in dataclasses.fields(kind)}
    assert set().union(*KNOWLEDGE.values()) <= fields
    assert passive_letter({"deltas", "model", "sent_in"}) == "A"
    assert passive_letter({"deltas", "served"}) == "B"
    assert passive_letter({"deltas", "served", "algorithm"}) == "C"
    assert passive_letter({"known", "algorithm"}) == "D"
    assert passive_letter({"priors", "auxiliary"}) == "E"
    assert MANIPULATING == {"A": "F", "B": "F", "C": "F", "D": "G"}


def test_attack_may_differ_from_its_family() -> None:
    assert find("imia").public_names() == Taxonomy(
        nist="NISTAML.033", atlas="AML.T0024.000", aisvs="v1.0-C11.2.5", letter="C"
    )
    assert find("recommendation/direction").public_names().nist == "NISTAML.032"
