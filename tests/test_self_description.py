"""Attacks, estimates and metrics describe themselves: counted over the syntax trees of the source."""

import ast
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedleak.evaluation.registry import KNOWN, REGISTRY
from tests.places import ROOT, package_sources

pytestmark = pytest.mark.inventory

NAMES = {name for kind in KNOWN for name in kind.names()}
CLASSES = {kind.__name__ for kind in REGISTRY.values()}


@functools.cache
def texts() -> dict[Path, str]:
    return {
        path: path.read_text(encoding="utf-8") for path in [*package_sources(), ROOT / "attack.py", ROOT / "train.py"]
    }


def nodes(concerned: Callable[[str], bool]) -> Iterator[tuple[str, ast.AST]]:
    """All nodes of the files whose text may concern a rule: a tree takes a hundred times as long as a search."""
    for path, text in texts().items():
        if concerned(text):
            for node in ast.walk(ast.parse(text)):
                yield path.relative_to(ROOT).as_posix(), node


def has_two(names: set[str], words: str) -> Callable[[str], bool]:
    """Whether a text has two of some names among its words, which a pattern finds."""
    return lambda text: len(names.intersection(re.findall(words, text))) > 1


def elements(node: ast.AST) -> list[ast.AST]:
    """The entries of a literal collection; of a dictionary keys and values."""
    if isinstance(node, ast.Dict):
        return [entry for entry in (*node.keys, *node.values) if entry is not None]
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List | ast.Set) else []


def test_no_list_names_attacks() -> None:
    """Which names are baselines, published or to be audited is said by the classes alone."""
    found = {}
    for path, node in nodes(has_two(NAMES, r"[\w-]+(?=[\"'])")):
        names = {e.value for e in elements(node) if isinstance(e, ast.Constant) and e.value in NAMES}
        if len(names) > 1:
            found[f"{path}:{getattr(node, 'lineno', 0)}"] = names
    # An attack's own names are part of its description.
    assert {place: names for place, names in found.items() if not place.startswith("attacks/")} == {}


def test_there_is_one_registry() -> None:
    """No dictionary, tuple or list of attack classes but the exports of the attack room."""
    found = set()
    for path, node in nodes(has_two(CLASSES, r"\w+")):
        classes = {e.id for e in elements(node) if isinstance(e, ast.Name) and e.id in CLASSES}
        if len(classes) > 1:
            found.add(path)
    assert {path for path in found if not path.endswith("__init__.py")} == set()


def test_one_place_calls_an_attack() -> None:
    """One at the server, and one at the site, where the guard attacks what it is about to send."""
    calls = [
        path
        for path, node in nodes(lambda text: re.search(r"\battack\(", text) is not None)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "attack"
        and "generator" in {keyword.arg for keyword in node.keywords}
    ]
    assert calls == ["fedleak/evaluation/runner.py", "fedleak/guard_checks/own_estimate.py"]


def test_one_place_cuts_a_view() -> None:
    """`View.select`; what joins the messages of several rounds makes a `History` of them and cuts nothing."""
    cuts = [
        path
        for path, node in nodes(lambda text: "replace(" in text and "pseudonyms" in text)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "replace"
        and "pseudonyms" in {keyword.arg for keyword in node.keywords}
    ]
    assert cuts == []


def test_nobody_routes_by_the_beginning_of_a_name() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path, node in nodes(lambda text: "startswith(" in text)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "startswith"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and any(name.startswith(str(node.args[0].value)) for name in NAMES)
    ]
    assert found == []
