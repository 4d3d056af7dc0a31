"""Tests mirror the source, and what several of them need lies in no test."""

import ast
import re
from pathlib import Path

import pytest

from tests.places import ROOT, source_files, tracked

TESTS = ROOT / "tests"
KINDS = {
    "one test for each thing of a kind": r".*/test_every_\w+",
    "files that strangers made": r".*/test_strangers_\w+",
    "tables of papers": r"tables/test_tables_of_\w+",
    "files of the project that are no source": (
        r"test_(batch_files|documents|github|mirror|outside|outside_incomplete|project|public_names|"
        r"recording_format_page|"
        r"self_description|start|sweeps)"
    ),
    "programs of the tests' own": r"(cluster|flower|fuzz|nvflare|regression)/.*",
}
"""What is named after no file of the source."""
TRACKED = [path.relative_to(TESTS) for path in tracked() if path.is_relative_to(TESTS)]
MODULES = [path for path in TRACKED if path.name.startswith("test_")]


def source_of(test: str) -> bool:
    """Whether ``a/test_b`` has a file ``a/b.py``, or a folder; ``test_b_more`` is a further test of it."""
    folder, _, name = test.rpartition("test_")
    parts = name.split("_")
    starts = ["_".join(parts[:end]) for end in range(len(parts), 0, -1)]
    places = (ROOT / folder, ROOT / "fedleak" / folder)
    return any((place / f"{start}.py").is_file() or (place / start).is_dir() for place in places for start in starts)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_test_is_named_after_what_it_tests(module: object) -> None:
    name = str(module).removesuffix(".py")
    assert source_of(name) or any(re.fullmatch(kind, name) for kind in KINDS.values())


def test_a_test_without_a_source_is_found() -> None:
    assert source_of("core/test_view")
    assert not source_of("core/test_nothing")


def test_compiled_files_are_no_source(tmp_path: Path) -> None:
    """Python writes them beside what it imports, unless a variable of the environment forbids it."""
    for name in ("tests/test_view.py", "tests/__pycache__/test_view.cpython-311.pyc", ".venv/lib/view.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert source_files(tmp_path) == [tmp_path / "tests" / "test_view.py"]


def test_no_test_imports_a_test() -> None:
    found = {}
    for module in MODULES:
        nodes = ast.walk(ast.parse((TESTS / module).read_text(encoding="utf-8")))
        names = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        found[str(module)] = {name for name in names if ".test_" in name}
    assert {module: names for module, names in found.items() if names} == {}
