"""File of defences that an audit tries on a recording."""

from pathlib import Path
from typing import Any

from fedleak.core import named
from fedleak.core.errors import require
from fedleak.defenses.base import Defense
from fedleak.tables.overrides import check_lengths_of_lists
from fedleak.tables.table_file import filled, listed, read_mapping

Defences = dict[tuple[str, Any], list[Defense]]
"""Defences of a client, in order, by a name and a strength, None for a single one."""


def read_defences(path: Path) -> Defences:
    """Defences by name and strength.

    Each name has one defence, as ``{class_path: ..., init_args: {...}}`` or in short the name of a class; a list, which
    clients use in this order; or a mapping of strengths to these, where ``$`` stands for the strength and a key such as
    ``500, 100`` for several.

    Raises:
        InputError: the file cannot be read, or there is no such defence.
    """
    content = read_mapping(path, "a mapping of names to defences, as in configs/what_if.yaml")
    require(content, "defences", f"none in {path}", "Add `NAME: {class_path: LocalDP, init_args: ...}`.")
    defences: Defences = {}
    for name, value in content.items():
        if not isinstance(value, dict) or "class_path" in value:
            defences[str(name), None] = built(value, f"{name} in {path}")
            continue
        for key, description in value.items():
            for strength in listed(key):
                defences[str(name), strength] = built(filled(description, strength), f"{name}, {strength} in {path}")
    return defences


def built(value: Any, where: str) -> list[Defense]:
    """Defences of a description by class and arguments, or of a list of them; `where` is for messages."""
    descriptions = value if isinstance(value, list) else [value]
    # A name alone is a class without arguments.
    by_class_path = []
    for description in descriptions:
        by_class_path.append({"class_path": description} if isinstance(description, str) else description)
    check_lengths_of_lists(by_class_path, where)
    defences: list[Defense] = named.value(
        list[Defense],
        by_class_path,
        where=f"defences by class and arguments as {where}",
        way_out="Write them as model.defenses of a training.",
    )
    return defences
