"""The fields of a recording's manifest, each checked: a stranger may have written them."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from protocol.errors import InputError

DTYPES = ("float32", "float16", "bfloat16", "float64")
"""Types in which deltas may be stored."""
_LARGEST = 2**40
_RELEASE = {"clip", "noise_scale", "parameters"}
_DESCRIBED = {"shape", "dtype"}
_ALGORITHM = {"name", "arguments"}
_HASH = re.compile(r"[0-9a-f]{64}")


def check_fields(content: Mapping[str, Any], *, where: str) -> None:
    """Refuses a manifest whose fields are of another kind than docs/recording-format.md says.

    Args:
        content: the manifest, as JSON has it.
        where: its file, for the message.

    Raises:
        InputError: a field is missing, of another type, out of its range, or contradicts another field.
    """
    missing = [key for key in _CHECKS if key not in content]
    if missing:
        _refuse(missing[0], "nothing", "the fields of a manifest", where)
    for key, (right, expected) in _CHECKS.items():
        if not right(content[key]):
            _refuse(key, content[key], expected, where)
    for name, described in content["parameters"].items():
        if not is_described(described):
            _refuse(f"parameters[{name[:60]!r}]", described, f"a shape of numbers above 0, a dtype {DTYPES}", where)
    for name in content["row_parameters"]:
        if len(content["parameters"].get(name, {"shape": []})["shape"]) < 2:
            _refuse("row_parameters", name, "names of tables among the parameters", where)
    for release in content["releases"]:
        if not is_release(release):
            expected = "clip (above 0 or null), noise_scale (0 or more) and parameters, each once, of a release"
            _refuse("releases", release, expected, where)


def is_described(value: Any) -> bool:
    """Whether a parameter is described by its shape, of which no size is 0, and a type."""
    if not isinstance(value, dict) or value.keys() != _DESCRIBED:
        return False
    return is_shape(value["shape"]) and value["dtype"] in DTYPES


def is_shape(value: Any) -> bool:
    """Whether a value is a shape of at least one number, and not of more than any file holds."""
    if not isinstance(value, list | tuple) or len(value) > 8:
        return False
    return all(is_whole(size, 1, _LARGEST) for size in value) and math.prod(value) <= _LARGEST


def is_release(value: Any) -> bool:
    """Whether a release has a positive clip or none, a noise of finite scale, and names, each once."""
    if not isinstance(value, dict) or value.keys() != _RELEASE or not _is_names(value["parameters"]):
        return False
    clip = value["clip"]
    return (clip is None or (is_number(clip) and clip > 0)) and is_number(value["noise_scale"], 0)


def is_whole(value: Any, least: int, most: int) -> bool:
    """Whether a value is a whole number in a range; True and 1.0 are none."""
    return type(value) is int and least <= value <= most


def is_number(value: Any, least: float = -math.inf) -> bool:
    """Whether a value is a finite number; True is none."""
    return type(value) in (int, float) and math.isfinite(value) and value >= least


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(type(name) is str and name for name in value) and _distinct(value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(type(text) is str for text in value.values())


def _are_settings(value: Any) -> bool:
    """Whether a value gives columns, each with one number or text, by rounds."""
    if not isinstance(value, dict) or not all(re.fullmatch(r"[0-9]{1,15}", number) for number in value):
        return False
    columns = [column for own in value.values() for column in (own.items() if isinstance(own, dict) else [("", own)])]
    return all(name and (is_number(entry) or type(entry) is str) for name, entry in columns)


def _is_algorithm(value: Any) -> bool:
    right = isinstance(value, dict) and value.keys() == _ALGORITHM
    return value is None or (right and type(value["name"]) is str and isinstance(value["arguments"], dict))


def _distinct(names: list[str]) -> bool:
    return len(set(names)) == len(names)


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "parameters": (lambda value: isinstance(value, dict) and bool(value) and "" not in value, "parameters by name"),
    "row_parameters": (_is_names, "a list of names, each once"),
    "learner": (_is_algorithm, "null, or a name and arguments"),
    "releases": (lambda value: isinstance(value, list), "a list of releases"),
    "seed": (lambda value: value is None or is_whole(value, -(2**63), 2**64), "null or a whole number"),
    "data": (
        lambda value: _is_texts(value) and bool(value.get("name")),
        "texts by key, and a name",
    ),
    "config": (
        lambda value: isinstance(value, dict) and _are_settings(value.get("round_settings", {})),
        "settings by key, of which round_settings are columns by round",
    ),
    "versions": (_is_texts, "texts by key"),
    "commit": (lambda value: value is None or type(value) is str, "null or a text"),
    "auxiliary": (
        lambda value: value is None or (type(value) is str and bool(_HASH.fullmatch(value))),
        "null or the sha256 of the auxiliary data",
    ),
    "run": (lambda value: value is None or type(value) is str, "null or a text"),
}


def _refuse(key: str, value: Any, expected: str, where: str) -> NoReturn:
    raise InputError(
        expected=f"{expected} as {key!r}",
        found=f"{str(value)[:100]!r} in {where}",
        way_out="The recording is damaged or foreign: fetch it again, or record again with this version.",
    )
