"""Frozen dataclasses from the plain values of a file: the one reader of recorder and guard.

The type of a field and the limits that `option` gives it say what a file may hold there. Numbers are not converted from
texts, and True is no number.
"""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, Union

from fedleak_recorder.errors import InputError
from fedleak_recorder.nearest import did_you_mean

_Kind = TypeVar("_Kind")
_IN_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
NAME = "(?s).+"
"""Pattern of a text that is not empty."""


class FieldError(ValueError):
    """What ``__post_init__`` of a dataclass raises where a field has its type, but does not fit the others.

    Args:
        key: the field.
        expected: what was expected there.
    """

    def __init__(self, key: str, expected: str) -> None:
        self.key = key
        self.expected = expected
        super().__init__(f"{expected} as {key}")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the value of a field, or on each of several.

    Attributes:
        text: what the field means, for the schema and the documentation.
        low, high: smallest and largest number.
        above, below: numbers that a number must be above, and below.
        pattern: regular expression of the whole of a text.
        distinct: whether each of several values stands once.
    """

    text: str = ""
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    pattern: str | None = None
    distinct: bool = False

    def allow(self, number: float) -> bool:
        """Whether a number is within the limits."""
        # Every comparison with NaN is false, so that no limit below would refuse it.
        if not math.isfinite(number):
            return False
        if self.low is not None and number < self.low:
            return False
        if self.high is not None and number > self.high:
            return False
        if self.above is not None and number <= self.above:
            return False
        return self.below is None or number < self.below

    def in_words(self) -> str:
        """The limits on a number, to be put behind ``a number``."""
        words = {"above": self.above, "of at least": self.low, "below": self.below, "of at most": self.high}
        limits = [f"{word} {limit}" for word, limit in words.items() if limit is not None]
        return f" {' and '.join(limits)}" if limits else ""


_NO_LIMITS = Limits()


def option(
    text: str = "",
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    pattern: str | None = None,
    distinct: bool = False,
) -> Any:
    """A field of a file.

    Args:
        text: see `Limits`, as all others.
        default: value where the key is absent; without one the key is required.
        default_factory: makes such a value, e.g. ``dict``.
        low: smallest number.
        high: largest number.
        above: number that a number must be above.
        below: number that a number must be below.
        pattern: of the whole of a text.
        distinct: whether each of several values stands once.
    """
    limits = Limits(text=text, low=low, high=high, above=above, below=below, pattern=pattern, distinct=distinct)
    metadata = {"limits": limits}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def read_fields(kind: type[_Kind], value: Any, where: str, *, way_out: str, file: str = "") -> _Kind:
    """A dataclass from a mapping.

    Args:
        kind: the dataclass.
        value: the mapping.
        where: what it is, for messages.
        way_out: what the reader of a message can do.
        file: its file, for messages, unless `way_out` or `where` names it.

    Raises:
        InputError: it is no mapping, or has an unknown key, lacks one, or has a value of a wrong type or range.
    """
    return _Reader(way_out=way_out, file=file).fields(kind, value, where)


def read_value(hint: Any, value: Any, where: str, *, way_out: str, file: str = "") -> Any:
    """A value of a type; the arguments are those of `read_fields`."""
    return _Reader(way_out=way_out, file=file).value(hint, value, _NO_LIMITS, where)


@dataclass(frozen=True, kw_only=True)
class _Reader:
    way_out: str
    file: str

    def fields(self, kind: type[_Kind], value: Any, where: str) -> _Kind:
        """A dataclass from a mapping."""
        if not isinstance(value, Mapping):
            raise self.wrong(f"keys and values as {where}", value)
        hints = typing.get_type_hints(kind)
        fields_by_key = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        for key in value:
            if key not in fields_by_key:
                way_out = did_you_mean(str(key), fields_by_key, self.way_out)
                raise self.wrong(f"a key of {where} among {', '.join(fields_by_key)}", key, way_out)
        missing = [name for name, field in fields_by_key.items() if name not in value and not has_default(field)]
        if missing:
            word = "keys" if len(missing) > 1 else "key"
            keys = ", ".join(map(str, value)) or "none"
            raise InputError(
                expected=f"the {word} {', '.join(missing)} in {where}",
                found=f"{keys[:200]}{self._in_file()}",
                way_out=self.way_out,
            )
        arguments = {}
        for key, part in value.items():
            arguments[key] = self.value(hints[key], part, limits_of(fields_by_key[key]), f"{where}.{key}")
        try:
            return kind(**arguments)
        except FieldError as error:
            raise self.wrong(f"{error.expected} as {where}.{error.key}", value.get(error.key)) from None

    def value(self, hint: Any, value: Any, limits: Limits, where: str) -> Any:
        """A value of a type, with lists as tuples."""
        # Of ``tuple[int, ...]`` the origin is tuple, and the first part int.
        origin = typing.get_origin(hint)
        parts = typing.get_args(hint)
        if origin in (types.UnionType, Union):
            return self._first(parts, value, limits, where)
        if hint is Any:
            return value
        if dataclasses.is_dataclass(hint):
            return self.fields(typing.cast(type, hint), value, where)
        if origin is tuple:
            return self._several(parts[0], value, limits, where)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return self._mapping(parts, value, limits, where)
        if origin is Literal:
            # 1 == True == 1.0, so that the type is compared too.
            if not any(type(value) is type(choice) and value == choice for choice in parts):
                raise self.wrong(f"one of {', '.join(map(str, parts))} as {where}", value)
            return value
        return self._scalar(hint, value, limits, where)

    def wrong(self, expected: str, found: Any, way_out: str = "") -> InputError:
        """The error about a value."""
        return InputError(
            expected=expected, found=f"{repr(found)[:80]}{self._in_file()}", way_out=way_out or self.way_out
        )

    def _in_file(self) -> str:
        return f" in {self.file}" if self.file else ""

    def _first(self, options: tuple[Any, ...], value: Any, limits: Limits, where: str) -> Any:
        """A value of the first of several types that it has."""
        if value is None and type(None) in options:
            return None
        kinds = [option for option in options if option is not type(None)]
        for kind in kinds[:-1]:
            try:
                return self.value(kind, value, limits, where)
            except InputError:
                continue
        # The error of the last type is that of all.
        return self.value(kinds[-1], value, limits, where)

    def _mapping(self, hints: tuple[Any, ...], value: Any, limits: Limits, where: str) -> dict[Any, Any]:
        """A mapping, whose hints are those of its keys and of its values."""
        is_mapping = isinstance(value, Mapping)
        if not is_mapping or (hints[0] is str and not all(isinstance(key, str) for key in value)):
            raise self.wrong(f"names and values as {where}", value)
        return {key: self.value(hints[1], part, limits, f"{where}.{str(key)[:60]}") for key, part in value.items()}

    def _several(self, hint: Any, value: Any, limits: Limits, where: str) -> tuple[Any, ...]:
        """Several values of one type."""
        if not isinstance(value, list | tuple):
            raise self.wrong(f"a list as {where}", value)
        several = []
        for position, part in enumerate(value):
            several.append(self.value(hint, part, limits, f"{where}[{position}]"))
        if limits.distinct and len(set(several)) < len(several):
            raise self.wrong(f"values that stand once as {where}", value)
        return tuple(several)

    def _scalar(self, hint: Any, value: Any, limits: Limits, where: str) -> Any:
        """A text, number or truth value within its limits."""
        is_number = hint in (int, float)
        # True is an int to isinstance, and is no number of a file; a whole number may stand for a fraction.
        fits = type(value) is hint or (hint is float and type(value) is int)
        if fits and is_number:
            fits = limits.allow(value)
        if fits and hint is str and limits.pattern is not None:
            fits = re.fullmatch(limits.pattern, value) is not None
        if not fits:
            expected = _IN_WORDS[hint]
            if is_number:
                expected += limits.in_words()
            if hint is str and limits.pattern not in (None, NAME):
                expected += f" that fits {limits.pattern}"
            raise self.wrong(f"{expected} as {where}", value)
        return hint(value)


def limits_of(field: "dataclasses.Field[Any]") -> Limits:
    """The limits that `option` gave a field."""
    limits: Limits = field.metadata.get("limits", _NO_LIMITS)
    return limits


def has_default(field: "dataclasses.Field[Any]") -> bool:
    """Whether a key may be absent."""
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
