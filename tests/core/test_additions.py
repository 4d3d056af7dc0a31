"""The kernel finds additions by search, and names none of them in its code."""

import ast
import re
from pathlib import Path

import pytest

from fedleak.core.additions import ROOMS, room
from tests.places import ADDITIONS, ROOT

KERNEL = sorted(path for path in (ROOT / "fedleak").rglob("*.py") if path.parent != ROOT / "fedleak")
"""Files of the kernel; the package's own file, which is none, has the names that a user imports."""
_ADDITION = re.compile(rf"fedleak\.({'|'.join(ADDITIONS)})(\.\w+)*")


def names_of_additions(file: Path) -> set[str]:
    """Additions that the code of a file imports or has as a text, as for an import by name."""
    named = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            named |= {node.module or "", *(f"{node.module}.{one.name}" for one in node.names)}
        if isinstance(node, ast.Import):
            named |= {one.name for one in node.names}
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            named.add(node.value)
    return {name for name in named if _ADDITION.fullmatch(name)}


def test_rooms_are_the_folders_at_the_top() -> None:
    assert ROOMS == ADDITIONS
    assert [room(name).__name__ for name in ROOMS] == [f"fedleak.{name}" for name in ROOMS]


@pytest.mark.parametrize("path", ["core", "server.codebook", "", "attack"])
def test_what_is_no_room_of_additions_is_imported_by_its_name(path: str) -> None:
    with pytest.raises(ValueError, match="attacks, callbacks"):
        room(path)


@pytest.mark.inventory
def test_no_file_of_the_kernel_names_an_addition() -> None:
    named = {file.relative_to(ROOT): names_of_additions(file) for file in KERNEL if ROOT in file.resolve().parents}
    # Checks of the guard are additions too: plug-ins that attack a message.
    rooms = {ROOT / "fedleak" / name for name in (*ADDITIONS, "guard_checks")}
    assert len(named) > 300
    assert {file: names for file, names in named.items() if names and not rooms & {*(ROOT / file).parents}} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from fedleak import attacks",
        "from fedleak.modules import FNCF",
        "import fedleak.callbacks",
        'importlib.import_module("fedleak.attacks.composition")',
    ],
)
def test_a_name_of_an_addition_is_noticed(line: str, tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(line, encoding="utf-8")
    assert names_of_additions(file)
