"""Checks of one tensor of a recording, of which each says in its error what does not fit."""

import numpy as np

from fedleak_recorder.arrays import Array, dtype_name, is_finite

MOST_VALUES = 1000
"""Upper bound of the number of values of an attribute."""
WHOLE = ("int64", "int32", "int16", "int8", "uint8")
"""Types of whole numbers, all of which int64 holds."""


class MisfitError(Exception):
    """A tensor that does not fit; the message names it and the reason."""


def need(condition: object, problem: str) -> None:
    """Raises a `MisfitError` unless a condition holds."""
    if not condition:
        raise MisfitError(problem)


def check_rows(key: str, value: Array, rows: int, of: str = "rows") -> None:
    """Checks that a tensor has one row of each client, or of each served item."""
    need(value.ndim and len(value) == rows, f"{key!r} of shape {tuple(value.shape)}, not of {rows} {of}")


def check_numbers(key: str, value: Array) -> None:
    """Checks that a tensor holds finite real numbers, or truth values."""
    need(value.dtype == np.bool_ or is_finite(value), f"NaN, infinity or complex numbers in {key!r}")


def check_distinct(key: str, names: Array) -> None:
    """Checks that each name stands once."""
    need(len(np.unique(names)) == names.size, f"{key!r} with the same name twice")


def whole_numbers(key: str, value: Array, dim: int | None) -> Array:
    """The array as int64, checked to hold whole numbers from 0 and to have so many dimensions, if they are known."""
    need(dim is None or value.ndim == dim, f"{key!r} of shape {tuple(value.shape)}")
    need(value.dtype.name in WHOLE, f"{key!r} of {value.dtype}, not of whole numbers")
    need(not value.size or int(value.min()) >= 0, f"{key!r} with a negative number")
    return value.astype(np.int64, copy=False)


def check_attribute(name: str, value: Array, dimensions: int) -> None:
    """Checks the values of an attribute: whole numbers from 0, or -1 where they are unknown."""
    is_whole = value.ndim == dimensions and dtype_name(value) in WHOLE
    fits = is_whole and bool((value >= -1).all()) and bool((value < MOST_VALUES).all())
    need(fits, f"{name!r} with other values than whole numbers from -1 (unknown) to below {MOST_VALUES}")
