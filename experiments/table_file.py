"""The file of a table: its keys, partial tables over others, and labels with their overrides."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from experiments.overrides import PARTS, Config, near
from protocol.errors import InputError

Label = str | int | float
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("over", "train"), (str,)),
    **dict.fromkeys(("metrics", "also", "after"), (list,)),
    **dict.fromkeys(("set", "setting", "axes", "attacks", "arguments"), (dict,)),
    **dict.fromkeys(("messages", "record", "rounds", "scales"), (dict,)),
    **dict.fromkeys(("seeds", "jobs"), (int,)),
}
KEYS = tuple(_TYPES)
OF_A_CELL = ("attacks", "arguments", "messages", "record", "rounds", "setting", "after", "where")
"""Keys of an override that are not the training's."""
_LISTED = re.compile(r"\s*,\s*")


def read_content(path: Path) -> dict[str, Any]:
    """The content of a table's file, over that of another where it names one under ``over``."""
    content = read_mapping(path, "a table as in configs/paper")
    check_keys(content, KEYS, f"keys of a table in {path}")
    for key, value in content.items():
        if not isinstance(value, _TYPES[key]):
            named = " or ".join(kind.__name__ for kind in _TYPES[key])
            raise InputError(expected=f"a {named} as {key} in {path}", found=repr(value), way_out="Fix the value.")
    if "train" in content:
        content["train"] = str((path.parent / content["train"]).resolve())
    other = content.pop("over", None)
    return content if other is None else over(read_content(path.parent / other), content)


def read_mapping(path: Path, expected: str) -> dict[str, Any]:
    """The content of a YAML file.

    Raises:
        InputError: it is missing, no YAML, or no mapping.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(expected=expected, found=str(error), way_out="Give the path of such a file.") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            expected=expected, found=f"{' '.join(str(error).split())} in {path}", way_out="Fix it."
        ) from None
    if not isinstance(content, dict):
        raise InputError(expected=expected, found=f"{content!r:.60} in {path}", way_out="Write `key: value` lines.")
    return content


def check_keys(given: Collection[str], known: Sequence[str], expected: str) -> None:
    """Refuses a key that is not known.

    Raises:
        InputError: names the key, and the known one that is most like it.
    """
    for key in given:
        if key not in known:
            raise InputError(
                expected=f"{expected} among {', '.join(known)}",
                found=repr(key),
                way_out=near(str(key), known) or "Fix the key.",
            )


def over(content: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """A partial table over another: its keys replace the other's; in ``set``, ``setting`` and ``axes`` one by one."""
    together = {key: {**content.get(key, {}), **part[key]} for key in ("set", "setting", "axes") if key in part}
    return {**content, **part, **together}


def labels_of(values: Any, axis: str) -> dict[Label, Mapping[str, Any]]:
    """The overrides by label; a key such as ``4, 8`` is several labels."""
    given = {value: {} for value in values} if isinstance(values, list) else values
    if not isinstance(given, Mapping):
        raise InputError(
            expected=f"labels of axis {axis}, each with its overrides", found=repr(values), way_out="Fix `axes`."
        )
    made: dict[Label, Mapping[str, Any]] = {}
    for key, overrides in given.items():
        for label in listed(key):
            made[label] = overrides or {}
            checked(made[label], f"axis {axis}, label {label}")
    return made


def listed(key: Any) -> list[Label]:
    """The labels of a key: several where commas part them."""
    if isinstance(key, list):
        return key
    return [yaml.safe_load(part) for part in _LISTED.split(key)] if isinstance(key, str) and "," in key else [key]


def checked(override: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """An override whose keys are those of ``train.py`` or of a cell."""
    for key in override:
        if key.partition(".")[0] not in PARTS:
            check_keys([key], OF_A_CELL, f"keys of train.py (data..., model..., trainer...) or, in {where},")
    return override


def filled(value: Any, label: Label) -> Any:
    """An override with the label in place of ``$``."""
    if isinstance(value, Mapping):
        return {key: filled(own, label) for key, own in value.items()}
    if isinstance(value, list):
        return [filled(own, label) for own in value]
    return label if value == "$" else value


def read_training(path: Path) -> Config:
    """A configuration of ``train.py`` that names the classes of its data and its model.

    Raises:
        InputError: it is none.
    """
    config = read_mapping(path, "a configuration as in configs/train")
    for part in ("data", "model"):
        if isinstance(config.get(part), str):
            config[part] = {"class_path": config[part]}
        if not isinstance(config.get(part), Mapping) or "class_path" not in config[part]:
            raise InputError(expected=f"a class as {part} in {path}", found=repr(config.get(part)), way_out="Name one.")
    return config
