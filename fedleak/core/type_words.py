"""Types of arguments in words, for messages about wrong values."""

import inspect
import operator
import os
from collections.abc import Collection, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from fedleak.core.value_limits import CLASS_PATH, is_number, largest_number, restrictions_of

LIMITS_IN_WORDS = {
    operator.gt: "above",
    operator.ge: "of at least",
    operator.lt: "below",
    operator.le: "of at most",
}
"""What stands before the bound of a range in a message."""
COLLECTIONS = (list, tuple, set, frozenset, dict)
"""Types that are collections without saying of what."""


def described_type(hint: Any, *, trusts: bool = True) -> str:
    """What values a type has, in words.

    >>> from fedleak.core.ranges import PositiveInt, UnitInterval
    >>> described_type(PositiveInt | None), described_type(UnitInterval)
    ('a whole number above 0 or null', 'a number of at least 0 and of at most 1')
    """
    origin = hint if hint in COLLECTIONS else get_origin(hint)
    options = get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(described_type(option, trusts=trusts) for option in options)
    if origin is Literal:
        return f"one of {', '.join(map(str, options))}"
    if is_number(hint):
        return _described_number(hint, trusts)
    if hint in _NAMED:
        return _NAMED[hint]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "values by name"
    if isinstance(origin, type) and issubclass(origin, Collection):
        return _described_collection(origin, options, trusts)
    name = getattr(hint, "__name__", str(hint))
    if isinstance(hint, type) and not issubclass(hint, os.PathLike):
        # Of an abstract class only the classes below it have objects, so one of them must be named.
        if inspect.isabstract(hint):
            return f"the {CLASS_PATH} of a {name}"
        return f"the arguments of a {name} by name"
    if trusts:
        return f"a {name}"
    return f"no value, because a file may not give a {name}"


_NAMED = {
    bool: "true or false",
    str: "a text",
    None: "null",
    NoneType: "null",
    Any: "a number, a text, or a list or mapping of them",
    object: "a number, a text, or a list or mapping of them",
}


def _described_collection(origin: type, options: tuple[Any, ...], trusts: bool) -> str:
    # tuple[int, str] has a fixed number of entries, tuple[int, ...] any.
    if origin is tuple and options and options[-1] is not Ellipsis:
        return f"a list of {len(options)} values"
    entry = options[0] if options else Any
    return f"a list, each {described_type(entry, trusts=trusts)}"


def _described_number(hint: Any, trusts: bool) -> str:
    number = "a whole number" if issubclass(hint, int) else "a number"
    restrictions = restrictions_of(hint)
    limits = [f"{LIMITS_IN_WORDS[comparison]} {limit:g}" for comparison, limit in restrictions]
    has_upper_limit = any(comparison in (operator.lt, operator.le) for comparison, _ in restrictions)
    if not trusts and not has_upper_limit:
        largest = largest_number(hint)
        limits.append(f"up to {largest:g}" if isinstance(largest, float) else f"up to {largest:,}")
    return " ".join([number, " and ".join(limits)]).strip()
