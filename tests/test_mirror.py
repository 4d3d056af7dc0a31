"""Tests mirror the source, and what several of them need lies in no test."""

import re
from pathlib import Path

from tests.check import source_of
from tests.places import ROOT, source_files, tracked

TESTS = ROOT / "tests"
KINDS = {
    "one test for each thing of a kind": r".*/test_every_\w+",
    "files that strangers made": r".*/test_strangers_\w+",
    "tables of papers": r"tables/test_tables_of_\w+",
    "files of the project that are no source": (
        r"test_(batch_files|check|documents|github|mirror|outside|outside_incomplete|project|public_names|"
        r"recording_format_page|"
        r"self_description|start|sweeps)"
    ),
    "programs of the tests' own": r"(cluster|flower|fuzz|nvflare|regression|wheel)/.*",
}
"""What is named after no file of the source."""
TRACKED = [path.relative_to(TESTS) for path in tracked() if path.is_relative_to(TESTS)]
MODULES = [path for path in TRACKED if path.name.startswith("test_")]


def test_a_test_is_named_after_what_it_tests() -> None:
    names = [path.as_posix().removesuffix(".py") for path in MODULES]
    unnamed = [name for name in names if not any(re.fullmatch(kind, name) for kind in KINDS.values())]
    assert names
    assert [name for name in unnamed if source_of(name) is None] == []


def test_a_test_without_a_source_is_found() -> None:
    assert source_of("core/test_view") is not None
    assert source_of("core/test_nothing") is None


def test_compiled_files_are_no_source(tmp_path: Path) -> None:
    """Python writes them beside what it imports, unless a variable of the environment forbids it."""
    for name in ("tests/test_view.py", "tests/__pycache__/test_view.cpython-311.pyc", ".venv/lib/view.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert source_files(tmp_path) == [tmp_path / "tests" / "test_view.py"]


def test_no_test_imports_a_test() -> None:
    imports = re.compile(r"^\s*(?:from|import) (?:\S+\.)?test_\w+", re.MULTILINE)
    texts = {str(module): (TESTS / module).read_text(encoding="utf-8") for module in MODULES}
    found = {module: imports.findall(text) for module, text in texts.items()}
    assert {module: names for module, names in found.items() if names} == {}
