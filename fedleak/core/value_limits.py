"""Limits of the values that a stranger's file may hold, and of numbers whose type is a range."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

CLASS_PATH = "class_path"
ARGUMENTS = "init_args"
LARGEST_SIZE = 10**8
"""Largest whole number of a stranger's file where the type is a range: sizes, numbers of epochs."""
_LARGEST_SEED = 2**64
"""Largest whole number of a stranger's file elsewhere, for seeds."""
_LARGEST_NUMBER = 1e30
"""Largest number with a fraction: squares and products of a few of them still fit a float64."""
MOST_ENTRIES = 1000
"""Entries of a list or mapping, and characters of a text, in a stranger's file."""
DEEPEST = 8
"""Levels of objects in objects, and of lists in lists."""


def restrictions_of(hint: Any) -> Sequence[tuple[Callable[[Any, Any], bool], float]]:
    """Comparisons that a number of one of the types of `fedleak.core.ranges` fulfils; none for other types."""
    return getattr(hint, "_restrictions", ())


def is_number(hint: Any) -> bool:
    """Whether a type is that of numbers; truth values are none."""
    return isinstance(hint, type) and issubclass(hint, int | float) and hint is not bool


def largest_number(hint: Any) -> float:
    """Largest number of a type in a stranger's file."""
    if issubclass(hint, float):
        return _LARGEST_NUMBER
    if hint is int:
        return _LARGEST_SEED
    return LARGEST_SIZE


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether a value of any type consists of numbers and texts alone, and describes no object."""
    if isinstance(value, list | tuple | Mapping):
        if depth >= DEEPEST or len(value) > MOST_ENTRIES or CLASS_PATH in value:
            return False
        parts = list(value)
        if isinstance(value, Mapping):
            parts += value.values()
        return all(is_plain(part, depth + 1) for part in parts)
    if isinstance(value, str):
        return len(value) < MOST_ENTRIES
    # The very types, without their subclasses: numbers of NumPy and truth values are others.
    if type(value) is float:
        return math.isfinite(value) and abs(value) <= _LARGEST_NUMBER
    if type(value) is int:
        return abs(value) <= _LARGEST_SEED
    return value is None or type(value) is bool
