"""A package says its public names twice, for Python and for type checkers, and under one name only."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

from fedleak.core.exports import attach, public_names
from tests.places import ADDITIONS, ROOT, package_sources

pytestmark = pytest.mark.inventory

PACKAGES = [path for path in package_sources() if "import attach\n" in path.read_text(encoding="utf-8")]
IN_THIS_PACKAGE = "fedleak.core"
"""Package that the tests of `attach` itself write to; it has modules and no class of the names below."""


def checked_imports(path: Path) -> tuple[dict[str, str], list[str]]:
    """What ``if TYPE_CHECKING:`` imports: the module of each name, and the packages of which it imports all names."""
    modules: dict[str, str] = {}
    packages: list[str] = []
    for block in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                assert isinstance(line, ast.ImportFrom), ast.unparse(line)
                for alias in line.names:
                    if alias.name == "*":
                        packages.append(str(line.module))
                    else:
                        assert alias.asname in (alias.name, None), ast.unparse(line)
                        modules[alias.name] = str(line.module)
    return modules, packages


def attached(path: Path) -> tuple[dict[str, str], list[str]]:
    """What the call of `attach` says of the same."""
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    (call,) = [node for node in calls if ast.unparse(node.func) == "attach"]
    packages = [ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg == "packages"]
    return ast.literal_eval(call.args[1]), [name for names in packages for name in names]


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.relative_to(ROOT).as_posix())
def test_type_checkers_and_python_find_the_same_names_in_the_same_modules(path: Path) -> None:
    assert attached(path) == checked_imports(path)


def test_every_room_is_among_the_packages() -> None:
    assert len(PACKAGES) > 35
    assert {ROOT / room / "__init__.py" for room in ADDITIONS} <= set(PACKAGES)


def test_a_difference_is_found(tmp_path: Path) -> None:
    lines = ["if TYPE_CHECKING:", "    from a import B as B", "    from c import *", "else:", "    attach('a', {{{}}})"]
    path = tmp_path / "__init__.py"
    path.write_text("\n".join(lines).format("'B': 'a'"))
    assert checked_imports(path) == ({"B": "a"}, ["c"])
    assert attached(path) == ({"B": "a"}, [])


def test_names_in_capitals_come_first_and_those_of_packages_last() -> None:
    modules = {"b": "fedleak.core.view", "a": "fedleak.core.view", "C": "fedleak.core.view"}
    _, _, names = attach(IN_THIS_PACKAGE, modules, packages=("fedleak.reports",))
    assert names == ["C", "a", "b", *public_names(importlib.import_module("fedleak.reports"))]


def test_an_unknown_name_is_refused_as_python_refuses_it() -> None:
    get, _, _ = attach(IN_THIS_PACKAGE, {"RoundView": "fedleak.core.view"})
    with pytest.raises(AttributeError, match=r"'fedleak\.core' has no attribute 'RoundViews'"):
        get("RoundViews")


@pytest.mark.parametrize("room", ADDITIONS)
def test_a_room_under_its_short_name_is_refused_with_the_way_out(room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    with pytest.raises(ImportError, match=rf"a second copy of its classes\. Write fedleak\.{room}\."):
        importlib.import_module(room)
    assert room not in sys.modules
