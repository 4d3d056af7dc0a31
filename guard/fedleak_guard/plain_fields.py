"""Frozen dataclasses from plain values of a YAML file, and their JSON schema."""

import contextlib
import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from fedleak_recorder.errors import InputError

_Kind = TypeVar("_Kind")
_WAY_OUT = "See the table of keys in docs/site/guard.md, or `fedleak-guard schema`."
_JSON = {str: "string", int: "integer", float: "number", bool: "boolean"}


def option(
    text: str, *, default: Any = dataclasses.MISSING, low: float | None = None, high: float | None = None
) -> Any:
    """A field of a policy.

    Args:
        text: what it means, for the schema and the documentation.
        default: value where the key is absent; without one the key is required.
        low: smallest value of a number, or of each of several; a number must be above it if `low` is 0 and the field is
            a float.
        high: largest value.
    """
    return dataclasses.field(default=default, metadata={"text": text, "low": low, "high": high})


def read_fields(kind: type[_Kind], value: Any, where: str) -> _Kind:
    """A dataclass from a mapping.

    Raises:
        InputError: it is no mapping, or has an unknown key, lacks one, or has a value of a wrong type or range.
    """
    if not isinstance(value, Mapping):
        raise InputError(expected=f"keys and values as {where}", found=_short(value), way_out=_WAY_OUT)
    hints, known = typing.get_type_hints(kind), {one.name: one for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in value:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1, cutoff=0.4)
            way_out = f"Do you mean {near[0]}?" if near else _WAY_OUT
            raise InputError(expected=f"a key of {where} among {', '.join(known)}", found=_short(key), way_out=way_out)
    for name, one in known.items():
        if name not in value and one.default is dataclasses.MISSING:
            raise InputError(expected=f"the key {name} in {where}", found=", ".join(value) or "none", way_out=_WAY_OUT)
    return kind(**{key: _read(hints[key], one, known[key].metadata, f"{where}.{key}") for key, one in value.items()})


def _read(hint: Any, value: Any, limits: Mapping[str, Any], where: str) -> Any:
    if isinstance(hint, types.UnionType):
        options = [one for one in hint.__args__ if one is not type(None)]
        return None if value is None and len(options) < len(hint.__args__) else _read(options[0], value, limits, where)
    if dataclasses.is_dataclass(hint):
        return read_fields(typing.cast(type, hint), value, where)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        if not isinstance(value, list):
            raise InputError(expected=f"a list as {where}", found=_short(value), way_out=_WAY_OUT)
        return tuple(_read(parts[0], one, limits, f"{where}[{place}]") for place, one in enumerate(value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise InputError(expected=f"names and values as {where}", found=_short(value), way_out=_WAY_OUT)
        return {key: _read(parts[1], one, limits, f"{where}.{key}") for key, one in value.items()}
    if origin is Literal:
        if value not in parts:
            raise InputError(expected=f"one of {', '.join(parts)} as {where}", found=_short(value), way_out=_WAY_OUT)
        return value
    return _scalar(hint, value, limits, where)


def _scalar(hint: Any, value: Any, limits: Mapping[str, Any], where: str) -> Any:
    if hint is float and isinstance(value, str):  # YAML 1.1 reads 1e-5 as a text
        with contextlib.suppress(ValueError):
            value = float(value)
    fits = isinstance(value, hint) or (hint is float and isinstance(value, int))
    if not fits or (isinstance(value, bool) and hint is not bool):
        raise InputError(expected=f"{_article(_JSON[hint])} as {where}", found=_short(value), way_out=_WAY_OUT)
    if hint in (int, float):
        low, high = limits.get("low"), limits.get("high")
        positive = hint is float and low == 0
        wrong = not math.isfinite(value) or (low is not None and (value < low or (positive and value == 0)))
        if wrong or (high is not None and value > high):
            least = "" if low is None else f" above {low}" if positive else f" of at least {low}"
            most = "" if high is None else f" of at most {high}"
            raise InputError(
                expected=f"a number{least}{' and' if least and most else ''}{most} as {where}",
                found=_short(value),
                way_out=_WAY_OUT,
            )
        value = hint(value)
    return value


def schema_of(kind: Any) -> dict[str, Any]:
    """JSON schema of a dataclass, of a type of a field, or of a field's optional type."""
    if isinstance(kind, types.UnionType):
        options = [schema_of(one) for one in kind.__args__ if one is not type(None)]
        return {"anyOf": [*options, {"type": "null"}]}
    if dataclasses.is_dataclass(kind):
        hints, fields = typing.get_type_hints(kind), dataclasses.fields(kind)
        parts = {one.name: _field_schema(hints[one.name], one) for one in fields}
        required = [one.name for one in fields if one.default is dataclasses.MISSING]
        made = {"type": "object", "additionalProperties": False, "properties": parts}
        return made | ({"required": required} if required else {})
    origin, held = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return {"type": "array", "items": schema_of(held[0])}
    if origin is Literal:
        return {"enum": list(held)}
    if origin is not None:
        return {"type": "object", "additionalProperties": schema_of(held[1])}
    return {"type": _JSON[kind]}


def _field_schema(hint: Any, one: "dataclasses.Field[Any]") -> dict[str, Any]:
    made = {"description": one.metadata["text"], **schema_of(hint)}
    numbers = [part for part in (made, *made.get("anyOf", ())) if part.get("type") in ("number", "integer")]
    low, high = one.metadata["low"], one.metadata["high"]
    for part in numbers:
        if low is not None:
            part["exclusiveMinimum" if part["type"] == "number" and low == 0 else "minimum"] = low
        if high is not None:
            part["maximum"] = high
    if isinstance(one.default, bool | int | float | str):
        made["default"] = one.default
    return made


def _article(kind: str) -> str:
    return {"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}[kind]


def _short(value: Any) -> str:
    return repr(value)[:80]
