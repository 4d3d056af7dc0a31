"""File of a table: keys, inheritance from other tables, and labels with their overrides."""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedleak.core.bounded_yaml import load_yaml
from fedleak.core.errors import InputError, require
from fedleak.core.moved import with_current_paths
from fedleak.core.places import moved_table
from fedleak.tables.overrides import PARTS, Config
from fedleak_recorder.nearest import did_you_mean
from fedleak_recorder.plain_fields import option, read_fields, read_value

Label = str | int | float
_LISTED = re.compile(r"\s*,\s*")
_Options = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TablePart:
    """Keys of a table, of one of its scales, or of a part of ``also``, with the types of their values."""

    over: str = option(default="")
    train: str = option(default="")
    metrics: tuple[str, ...] = option(default=())
    also: tuple[_Options, ...] = option(default=())
    after: tuple[str | _Options, ...] = option(default=())
    set: _Options = option(default_factory=dict)
    setting: _Options = option(default_factory=dict)
    axes: Mapping[str, Mapping[Any, Any] | tuple[Any, ...] | None] = option(default_factory=dict)
    attacks: Mapping[str, Mapping[Any, Any] | None] = option(default_factory=dict)
    arguments: _Options = option(default_factory=dict)
    messages: _Options = option(default_factory=dict)
    record: _Options = option(default_factory=dict)
    rounds: _Options = option(default_factory=dict)
    scales: Mapping[str, Mapping[Any, Any] | None] = option(default_factory=dict)
    seeds: int = option(default=1)
    jobs: int = option(default=1)


@dataclass(frozen=True, kw_only=True)
class CellPart:
    """Keys of an override that belong to the cell, not to the training; a list of attacks selects some of them."""

    attacks: tuple[str, ...] | Mapping[str, Mapping[Any, Any] | None] = option(default_factory=dict)
    arguments: _Options = option(default_factory=dict)
    messages: _Options = option(default_factory=dict)
    record: _Options = option(default_factory=dict)
    rounds: _Options = option(default_factory=dict)
    setting: _Options = option(default_factory=dict)
    after: tuple[str | _Options, ...] = option(default=())
    where: _Options = option(default_factory=dict)


KEYS = tuple(field.name for field in dataclasses.fields(TablePart))
OF_A_CELL = tuple(field.name for field in dataclasses.fields(CellPart))
_WAY_OUT = "Correct the value; docs/reference/tables.md lists the keys."


def read_content(path: Path, extended_by: Sequence[Path] = ()) -> dict[str, Any]:
    """Content of a table's file, merged over the table that it names under ``over``.

    Args:
        path: the file.
        extended_by: files that lead to it by ``over``, first one first.

    Raises:
        InputError: a file is missing or wrong, or is over itself.
    """
    content = read_mapping(path, "a table as in configs/table")
    file = path.resolve()
    if file in extended_by:
        circle = [*extended_by[extended_by.index(file) :], file]
        raise InputError(
            expected="tables that are not over themselves",
            found=f"`over` in a circle: {' over '.join(map(str, circle))}",
            way_out="Remove one of these `over`.",
        )
    is_training = {"model", "data"} <= {*content}
    way_out = f"It is the configuration of a training: fedleak train fit --config {path}."
    require(not is_training, f"a table as in configs/table in {path}", ", ".join(map(str, content)), way_out)
    check_part(content, "the table", path)
    # Paths in a table are relative to its folder.
    if "train" in content:
        written_path = f"{content['train']!r:.80} in {path}"
        way_out = "Write it without the character 0."
        require("\0" not in content["train"], "train: the path of a training", written_path, way_out)
        content["train"] = str((path.parent / content["train"]).resolve())
    if "over" not in content:
        return content
    extended = path.parent / content.pop("over")
    return over(read_content(moved_table(extended) or extended, [*extended_by, file]), content)


def read_mapping(path: Path, expected: str) -> dict[str, Any]:
    """Content of a YAML file.

    Raises:
        InputError: the file is missing, not YAML, or not a mapping.
    """
    try:
        content = with_current_paths(load_yaml(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(expected=expected, found=str(error), way_out="Give the path of such a file.") from None
    except ValueError as error:  # no YAML, not UTF-8, a path with a null byte
        problem = " ".join(str(error).split())
        raise InputError(expected=expected, found=f"{problem} in {path}", way_out="Correct the file.") from None
    if not isinstance(content, dict):
        raise InputError(expected=expected, found=f"{content!r:.60} in {path}", way_out="Write `key: value` lines.")
    return content


def check_keys(keys: Collection[str], valid_keys: Sequence[str], expected: str) -> None:
    """Checks that all keys are known; the error names an unknown key and the most similar known ones."""
    for key in keys:
        if key not in valid_keys:
            way_out = did_you_mean(str(key), valid_keys, "Correct the key.")
            raise InputError(expected=f"{expected} among {', '.join(valid_keys)}", found=repr(key), way_out=way_out)


def check_part(part: Mapping[str, Any], where: str, file: Path) -> None:
    """Checks the keys of a table or of one of its parts, and the types of their values; errors name key and type."""
    read_fields(TablePart, part, where, way_out=_WAY_OUT, file=str(file))


def over(content: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Content with the keys of `part` replaced; ``set``, ``setting`` and ``axes`` are merged key by key."""
    together = {**content, **part}
    for key in ("set", "setting", "axes"):
        if key in part:
            together[key] = {**content.get(key, {}), **part[key]}
    return together


def labels_of(values: Any, axis: str, file: str) -> dict[Label, Mapping[str, Any]]:
    """Overrides by label; a key such as ``4, 8`` stands for several labels."""
    # A list has labels alone, without overrides.
    keys_and_overrides = values.items() if isinstance(values, Mapping) else [(value, None) for value in values]
    overrides_by_label: dict[Label, Mapping[str, Any]] = {}
    for key, overrides in keys_and_overrides:
        read_value(Label, key, f"label of axis {axis}", way_out=_WAY_OUT, file=file)
        for label in listed(key):
            read_value(Label, label, f"label of axis {axis}", way_out=_WAY_OUT, file=file)
            overrides_by_label[label] = {} if overrides is None else overrides
            checked(overrides_by_label[label], f"axis {axis}, label {label} of {file}")
    return overrides_by_label


def listed(key: Any) -> list[Label]:
    """Labels of a key, separated by commas."""
    if isinstance(key, list):
        return key
    if not isinstance(key, str) or "," not in key:
        return [key]
    try:
        return [load_yaml(part) for part in _LISTED.split(key)]
    except ValueError as error:
        way_out = "Write names or numbers, with commas between them."
        raise InputError(expected=f"a list of values as {key[:60]!r}", found=str(error), way_out=way_out) from None


def checked(override: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The override, after a check of its keys, those of ``fedleak train`` or of a cell, and of the cell's values."""
    read_value(Mapping[Any, Any], override, f"the overrides of {where}", way_out=_WAY_OUT)
    of_the_cell = {key: value for key, value in override.items() if str(key).partition(".")[0] not in PARTS}
    check_keys(of_the_cell, OF_A_CELL, f"keys of fedleak train (data..., model..., trainer...) or, in {where},")
    read_fields(CellPart, of_the_cell, where, way_out=_WAY_OUT)
    return override


def filled(value: Any, label: Label) -> Any:
    """Override with the label instead of ``$``."""
    if isinstance(value, Mapping):
        return {key: filled(value_below, label) for key, value_below in value.items()}
    if isinstance(value, list):
        return [filled(entry, label) for entry in value]
    if value == "$":
        return label
    return value


def read_training(path: Path) -> Config:
    """Configuration of ``fedleak train`` with the classes of its data and its model."""
    config = read_mapping(path, "a configuration as in configs/train")
    for part in ("data", "model"):
        if isinstance(config.get(part), str):
            config[part] = {"class_path": config[part]}
        if not isinstance(config.get(part), Mapping) or "class_path" not in config[part]:
            raise InputError(expected=f"a class as {part} in {path}", found=repr(config.get(part)), way_out="Add it.")
    return config
