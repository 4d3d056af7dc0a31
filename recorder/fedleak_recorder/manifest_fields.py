"""Checks of the fields of manifests, which strangers may have written."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from fedleak_recorder.errors import InputError, require

DTYPES = ("float32", "float16", "bfloat16", "float64")
"""Types in which deltas may be stored."""
_LARGEST = 2**40


def check_fields(content: Mapping[str, Any], *, where: str) -> None:
    """Checks that the fields of a recording's manifest are as docs/reference/recording-format.md describes them."""

    def check(right: bool, key: str, value: Any, expected: str) -> None:
        way_out = "The recording is damaged or foreign: download it again, or record again with this version."
        require(right, f"{expected} as {key!r}", f"{str(value)[:100]!r} in {where}", way_out)

    for key, (right, expected) in _CHECKS.items():
        if key not in content:
            raise InputError(
                expected=f"the fields of a manifest in {where}", found=f"no {key!r}", way_out="Record again."
            )
        check(right(content[key]), key, content[key], expected)
    for name, described in content["parameters"].items():
        right_kind = isinstance(described, dict) and described.keys() == {"shape", "dtype"}
        fits = right_kind and is_shape(described["shape"]) and described["dtype"] in DTYPES
        check(fits, f"parameters[{name[:60]!r}]", described, f"a shape of numbers above 0, a dtype {DTYPES}")
    for name in content["row_parameters"]:
        table = len(content["parameters"].get(name, {"shape": []})["shape"]) > 1
        check(table, "row_parameters", name, "names of tables among the parameters")
    expected = "clip (above 0 or null), noise_scale (0 or more) and parameters, each once, of a release"
    for release in content["releases"]:
        check(is_release(release), "releases", release, expected)


def is_shape(value: Any) -> bool:
    """Whether a value is a shape without 0, of at most as many numbers as a file can hold."""
    if not isinstance(value, list | tuple) or len(value) > 8:
        return False
    return all(is_whole(size, 1, _LARGEST) for size in value) and math.prod(value) <= _LARGEST


def is_release(value: Any) -> bool:
    """Whether a release has a positive clip or none, finite noise, names, each once, and possible optional fields."""
    optional = {"own_devices", "epsilon", "delta", "neighbours", "bits", "participants"}
    if not isinstance(value, dict) or value.keys() - optional != {"clip", "noise_scale", "parameters"}:
        return False
    epsilon, delta, neighbours = value.get("epsilon"), value.get("delta"), value.get("neighbours", "replace")
    if not isinstance(value.get("own_devices", True), bool) or neighbours not in ("replace", "add"):
        return False
    if (epsilon is None) != (delta is None) or (epsilon is not None and not (is_number(epsilon) and epsilon > 0)):
        return False
    if delta is not None and not (is_number(delta) and 0 <= delta < 1):
        return False
    if delta == 0 and value["noise_scale"] != 0:
        return False  # no Gaussian noise has a delta of 0
    if (bits := value.get("bits")) is not None and not (is_number(bits) and bits > 0):
        return False
    if not is_whole(value.get("participants", 1), 1, _LARGEST):
        return False
    clip, names = value["clip"], value["parameters"]
    right = is_names(names) and len(set(names)) == len(names)
    return right and (clip is None or (is_number(clip) and clip > 0)) and is_number(value["noise_scale"], 0)


def is_whole(value: Any, least: int, most: int) -> bool:
    """Whether a value is an integer in a range; True and 1.0 are not."""
    return type(value) is int and least <= value <= most


def is_number(value: Any, least: float = -math.inf) -> bool:
    """Whether a value is a finite number; True is not."""
    return type(value) in (int, float) and math.isfinite(value) and value >= least


def is_names(value: Any) -> bool:
    """Whether a value is a list of texts that are not empty."""
    return isinstance(value, list | tuple) and all(type(name) is str and name for name in value)


def is_texts(value: Any) -> bool:
    """Whether a value is a mapping of texts."""
    return isinstance(value, Mapping) and all(type(text) is str for text in value.values())


def is_text(value: Any) -> bool:
    """Whether a value is None or a text."""
    return value is None or type(value) is str


def _are_settings(value: Any) -> bool:
    """Whether a value gives columns, each with one number or text, by rounds."""
    if not isinstance(value, dict) or not all(re.fullmatch(r"[0-9]{1,15}", number) for number in value):
        return False
    columns = [column for own in value.values() for column in (own.items() if isinstance(own, dict) else [("", own)])]
    return all(name and (is_number(entry) or type(entry) is str) for name, entry in columns)


def _is_algorithm(value: Any) -> bool:
    right = isinstance(value, dict) and value.keys() == {"name", "arguments"}
    return value is None or (right and type(value["name"]) is str and isinstance(value["arguments"], dict))


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "parameters": (lambda value: isinstance(value, dict) and bool(value) and "" not in value, "parameters by name"),
    "row_parameters": (lambda value: is_names(value) and len(set(value)) == len(value), "a list of names, each once"),
    "learner": (_is_algorithm, "null, or a name and arguments"),
    "releases": (lambda value: isinstance(value, list), "a list of releases"),
    "seed": (lambda value: value is None or is_whole(value, -(2**63), 2**64), "null or a whole number"),
    "data": (lambda value: is_texts(value) and bool(value.get("name")), "texts by key, and a name"),
    "config": (
        lambda value: isinstance(value, dict) and _are_settings(value.get("round_settings", {})),
        "settings by key, of which round_settings are columns by round",
    ),
    "versions": (is_texts, "texts by key"),
    "commit": (is_text, "null or a text"),
    "auxiliary": (
        lambda value: is_text(value) and re.fullmatch("[0-9a-f]{64}", value or "0" * 64) is not None,
        "null or the sha256 of the auxiliary data",
    ),
    "run": (is_text, "null or a text"),
}
