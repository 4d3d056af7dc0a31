"""File of defences that an audit tries on a recording."""

from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from fedleak import defenses
from fedleak.core.class_paths import classes_in
from fedleak.core.errors import InputError, require
from fedleak.defenses.base import Defense
from fedleak.tables.overrides import check_lengths_of_lists, near
from fedleak.tables.table_file import filled, listed, read_mapping
from fedleak.training.lightning.train_parser import one_line

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
    found: Defences = {}
    for name, value in content.items():
        if not isinstance(value, dict) or "class_path" in value:
            found[str(name), None] = built(value, f"{name} in {path}")
            continue
        for key, own in value.items():
            for strength in listed(key):
                found[str(name), strength] = built(filled(own, strength), f"{name}, {strength} in {path}")
    return found


def built(value: Any, where: str) -> list[Defense]:
    """Defences of a description by class and arguments, or of a list of them; `where` is for messages."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--defenses", type=list[Defense])
    try:
        named = [_with_path(one, where) for one in (value if isinstance(value, list) else [value])]
        check_lengths_of_lists(named, where)
        given = parser.parse_object({"defenses": named})
        made: list[Defense] = parser.instantiate(given).defenses
    except (ArgumentError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            expected=f"defences by class and arguments as {where}",
            found=one_line(error)[:300],
            way_out="Write them as model.defenses of a training.",
        ) from None
    return made


def _with_path(value: Any, where: str) -> Any:
    """The description of a defence with the path of its class, which may be given by its name alone."""
    own = {"class_path": value} if isinstance(value, str) else value
    name = own.get("class_path") if isinstance(own, dict) else None
    if not isinstance(name, str) or "." in name:
        return own
    kinds = {kind.__name__: kind for kind in classes_in(defenses, Defense)}
    way_out = near(name, list(kinds)) or f"Known: {', '.join(kinds)}."
    require(name in kinds, f"the name or path of a defence as {where}", repr(name), way_out)
    return {**own, "class_path": f"{kinds[name].__module__}.{name}"}
