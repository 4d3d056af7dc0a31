"""Plain values from strangers' JSON or YAML: no key twice, no NaN, bounded depth, number and size."""

import contextlib
import json
import math
from typing import Any, NoReturn

from fedleak_recorder.errors import require

_DEEPEST = 32
_MOST_VALUES = 2 * 10**6
_LONGEST_TEXT = 10**5
_INT64 = 2**63


def parse_json(content: bytes | str, *, where: str) -> Any:
    """A plain value (see `strange_value`) from JSON in which no key stands twice.

    Raises:
        ValueError: it is no such JSON; the message gives the reason.
    """
    try:
        value = json.loads(content, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("values that are nested too deeply") from None
    problem = strange_value(value)
    if problem is not None:
        raise ValueError(f"{problem} in {where}")
    return value


def strange_value(value: Any) -> str | None:
    """The first part of a value that JSON cannot hold, described; None if the value is plain.

    Not plain are also numbers beyond 64 bits, texts that UTF-8 cannot encode, more than 32 levels of nesting, and more
    than two million values, where each repetition of a YAML alias counts.
    """
    # A list of what is still to be looked at, with its depth, in place of a recursion that a stranger could exhaust.
    waiting: list[tuple[Any, int]] = [(value, 0)]
    count = 0
    while waiting:
        current, depth = waiting.pop()
        count += 1
        if count > _MOST_VALUES:
            return f"more than {_MOST_VALUES} values"
        if depth > _DEEPEST:
            return "values that are nested too deeply"
        if isinstance(current, dict):
            for key, part in current.items():
                waiting.append((key, depth + 1))
                waiting.append((part, depth + 1))
            for key in current:
                if not isinstance(key, str):
                    return f"a key that is no text: {_short(key)}"
        elif isinstance(current, list | tuple):
            waiting += [(part, depth + 1) for part in current]
        else:
            problem = _strange_scalar(current)
            if problem is not None:
                return problem
    return None


def whole_number(value: Any, *, what: str, where: str, way_out: str, most: int = 2**48) -> int:
    """A whole number from 0 to `most`, also of an array or tensor without dimensions, or as 3.0.

    Raises:
        InputError: it is none: a fraction, a text, True, NaN, a list.
    """
    number = value
    if getattr(value, "ndim", None) == 0:
        with contextlib.suppress(Exception):  # a tensor without memory has no number
            number = value.item()
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if isinstance(number, float):
        is_whole = number.is_integer()  # of NaN and infinity it is False
    require(is_whole and 0 <= number <= most, f"{what}, a whole number from 0", f"{_short(value)} in {where}", way_out)
    return int(number)


def _strange_scalar(value: Any) -> str | None:
    """What is no plain number, text or truth value, described; None if it is one."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        # As int64 or as uint64.
        if -_INT64 <= value < 2 * _INT64:
            return None
        return "a whole number of more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"the number {value}"
    if isinstance(value, str):
        if len(value) <= _LONGEST_TEXT and _is_unicode(value):
            return None
        return f"the text {_short(value)}"
    return f"a {type(value).__name__} where a text or a number is needed ({_short(value)})"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(value: Any) -> str:
    return ascii(value)[:60] if isinstance(value, str | bytes | int | float) else str(value)[:60]


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys stand once each; `json` would silently take the last of several."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {repeated[:60]!r} twice")
    return mapping


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"the number {name}, which JSON does not have")
