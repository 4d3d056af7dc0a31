"""File of a table: keys, inheritance from other tables, and labels with their overrides."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from experiments.overrides import PARTS, Config, near
from protocol.errors import InputError, require

Label = str | int | float
_NAMES = {str: "a text", int: "a whole number", list: "a list", dict: "a mapping"}
TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("over", "train"), (str,)),
    **dict.fromkeys(("metrics", "also", "after"), (list,)),
    **dict.fromkeys(("set", "setting", "axes", "attacks", "arguments"), (dict,)),
    **dict.fromkeys(("messages", "record", "rounds", "scales"), (dict,)),
    **dict.fromkeys(("seeds", "jobs"), (int,)),
}
KEYS = tuple(TYPES)
_OF_AN_OVERRIDE: dict[str, tuple[type, ...]] = {**TYPES, "attacks": (dict, list), "where": (dict,)}
"""Types of the keys of an override that belong to the cell."""
OF_A_CELL = ("attacks", "arguments", "messages", "record", "rounds", "setting", "after", "where")
"""Keys of an override that belong to the cell, not to the training."""
_LISTED = re.compile(r"\s*,\s*")


def read_content(path: Path) -> dict[str, Any]:
    """Content of a table's file, merged over the table that it names under ``over``."""
    content = read_mapping(path, "a table as in configs/paper")
    check_keys(content, KEYS, f"keys of a table in {path}")
    check_types(content, TYPES, str(path))
    if "train" in content:
        content["train"] = str((path.parent / content["train"]).resolve())
    other = content.pop("over", None)
    return content if other is None else over(read_content(path.parent / other), content)


def read_mapping(path: Path, expected: str) -> dict[str, Any]:
    """Content of a YAML file.

    Raises:
        InputError: the file is missing, not YAML, or not a mapping.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(expected=expected, found=str(error), way_out="Give the path of such a file.") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        found = f"{' '.join(str(error).split())} in {path}"
        raise InputError(expected=expected, found=found, way_out="Correct the file.") from None
    if not isinstance(content, dict):
        raise InputError(expected=expected, found=f"{content!r:.60} in {path}", way_out="Write `key: value` lines.")
    return content


def check_keys(given: Collection[str], known: Sequence[str], expected: str) -> None:
    """Checks that all keys are known.

    Raises:
        InputError: names the unknown key and the most similar known one.
    """
    for key in given:
        if not isinstance(key, str) or key not in known:
            way_out = near(str(key), known) or "Correct the key."
            raise InputError(expected=f"{expected} among {', '.join(known)}", found=repr(key), way_out=way_out)


def check_types(content: Mapping[str, Any], types: Mapping[str, tuple[type, ...]], where: str) -> None:
    """Checks the types of the values of a table or of an override, and that lists of names hold texts.

    Raises:
        InputError: names the key.
    """
    for key, value in content.items():
        kinds = types.get(key)
        if kinds is None:
            continue
        named = " or ".join(_NAMES[kind] for kind in kinds)
        right = isinstance(value, kinds) and not (isinstance(value, bool) and int in kinds)
        texts = key in ("metrics", "attacks") and isinstance(value, list)
        if not right or (texts and not all(isinstance(one, str) for one in value)):
            raise InputError(expected=f"{named} as {key} in {where}", found=f"{value!r:.60}", way_out="Correct it.")
        if key in ("attacks", "scales") and isinstance(value, dict):
            wrong = [name for name, own in value.items() if not isinstance(own, dict | None)]
            found = f"{value[wrong[0]]!r:.60} for {wrong[0]}" if wrong else ""
            require(not wrong, f"a mapping for each of {key} in {where}", found, "Correct it.")


def over(content: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Content with the keys of `part` replaced; ``set``, ``setting`` and ``axes`` are merged key by key."""
    together = {key: {**content.get(key, {}), **part[key]} for key in ("set", "setting", "axes") if key in part}
    return {**content, **part, **together}


def labels_of(values: Any, axis: str) -> dict[Label, Mapping[str, Any]]:
    """Overrides by label; a key such as ``4, 8`` stands for several labels."""
    plain = isinstance(values, list) and all(isinstance(value, str | int | float) for value in values)
    given = {value: {} for value in values} if plain else values
    if not isinstance(given, Mapping):
        expected = f"labels of axis {axis}, each with its overrides"
        raise InputError(expected=expected, found=repr(values), way_out="Correct `axes`.")
    made: dict[Label, Mapping[str, Any]] = {}
    for key, overrides in given.items():
        for label in listed(key):
            where = f"axis {axis}, label {label!r}"
            if not isinstance(label, str | int | float) or not isinstance(overrides, dict | None):
                found = label if isinstance(overrides, dict | None) else overrides
                expected = f"a text or a number as a label, with a mapping of overrides, in {where:.80}"
                raise InputError(expected=expected, found=f"{found!r:.60}", way_out="Correct `axes`.")
            made[label] = checked(overrides or {}, where)
    return made


def listed(key: Any) -> list[Label]:
    """Labels of a key, separated by commas."""
    if isinstance(key, list):
        return key
    return [yaml.safe_load(part) for part in _LISTED.split(key)] if isinstance(key, str) and "," in key else [key]


def checked(override: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The override, after a check that its keys are those of ``train.py`` or of a cell."""
    for key in override:
        if not isinstance(key, str) or key.partition(".")[0] not in PARTS:
            check_keys([key], OF_A_CELL, f"keys of train.py (data..., model..., trainer...) or, in {where},")
    check_types(override, _OF_AN_OVERRIDE, where)
    return override


def filled(value: Any, label: Label) -> Any:
    """Override with the label instead of ``$``."""
    if isinstance(value, Mapping):
        return {key: filled(own, label) for key, own in value.items()}
    if isinstance(value, list):
        return [filled(own, label) for own in value]
    return label if value == "$" else value


def read_training(path: Path) -> Config:
    """Configuration of ``train.py`` with the classes of its data and its model.

    Raises:
        InputError: a class is missing.
    """
    config = read_mapping(path, "a configuration as in configs/train")
    for part in ("data", "model"):
        if isinstance(config.get(part), str):
            config[part] = {"class_path": config[part]}
        if not isinstance(config.get(part), Mapping) or "class_path" not in config[part]:
            raise InputError(expected=f"a class as {part} in {path}", found=repr(config.get(part)), way_out="Add it.")
    return config
