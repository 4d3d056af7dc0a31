"""Plain copies of what a client wants to send, so that equal numbers are equal bytes and nothing changes while checked.

A sender who cannot choose numbers may still choose how they are held: the order of names, the sign of a zero, a view in
another order of memory, the class of an object. None of it is left in the copies that this module makes: builtin
numbers, texts, lists and dictionaries, and contiguous arrays of NumPy in the machine's order of bytes.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedleak_recorder.arrays import Array, as_array
from fedleak_recorder.errors import InputError, require

DEEPEST = 16
"""Levels of mappings and lists in metrics."""
MOST_METRICS = 2**16
"""Metrics, numbers and lists of a message; no policy needs more, and an object may pretend to have endlessly many."""
_WAY_OUT = "Send numbers, and lists and mappings of these with texts as names."
MOST_EXAMPLES = 2**31 - 1
"""Largest number of training examples that a client may report."""


class NoNumber:
    """Stands for what is no number in the copy of a message's metrics; it never leaves."""


def array_or_bytes(value: Any, *, where: str) -> Array:
    """An array of any framework, or ``(B,)`` uint8 of bytes, as models of trees are sent.

    Raises:
        InputError: it is neither.
    """
    if isinstance(value, bytes | bytearray):
        return np.frombuffer(value, np.uint8)
    return as_array(value, where=where)


def is_row_of_bytes(array: Array) -> bool:
    """Whether an array is one row of bytes, as which files are sent."""
    return array.ndim == 1 and array.dtype == np.uint8


def plain_array(value: Any, *, where: str) -> Array:
    """A copy of an array: contiguous, in the machine's order of bytes, without metadata of its type and without -0.0.

    Raises:
        InputError: it is no array of numbers, and no bytes.
    """
    array = array_or_bytes(value, where=where)
    if array.dtype.kind == "b":
        # A byte of a boolean array may be any of 256.
        return np.array(array.view(np.uint8) != 0, order="C")
    # Copied number by number: no stride, no field and no metadata of the type is left.
    plain = np.empty(array.shape, np.dtype(array.dtype.name))
    plain[...] = array
    if plain.dtype.kind in "fc":
        np.add(plain, 0, out=plain)  # -0.0 + 0.0 is 0.0
    return plain


def type_of_numbers(value: Any, plain: Array) -> str:
    """Type of the numbers of a sent tensor, whose copy `plain_array` made.

    Only tensors of PyTorch can be of bfloat16, which becomes float32; numbers that are none of bfloat16 show that a
    tensor lies about its type.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.dtype != torch.bfloat16:
        return str(plain.dtype)
    # A number of bfloat16 is the upper half of one of float32, whose lower 16 bits are 0.
    is_short = plain.dtype == np.float32 and not (plain.view(np.uint32) & 0xFFFF).any()
    return "bfloat16" if is_short else str(plain.dtype)


def plain_name(name: Any) -> str:
    """A name as Python's own text; a whole number becomes its digits.

    Raises:
        InputError: it is neither, or a text that UTF-8 cannot encode.
    """
    if isinstance(name, str):
        # Not `str(name)`, which a subclass may define; interned, so that equal names are one object in a pickle too.
        text = str.__str__(name)
        require(shown(text, len(text)) == text, "texts of Unicode as names", ascii(text[:60]), _WAY_OUT)
        return sys.intern(text)
    is_whole = isinstance(name, int | np.integer) and not isinstance(name, bool)
    require(is_whole, "texts as names", type(name).__name__[:40], _WAY_OUT)
    return sys.intern(str(int(name)))


def shown(text: Any, most: int) -> str:
    """At most so many characters of a text, in which what UTF-8 cannot encode is written as an escape."""
    plain_text = f"a {type(text).__name__}"
    if isinstance(text, str):
        plain_text = str.__str__(text)  # not `str(text)`, which a subclass may define
    # Escapes make the text longer, so that it is cut again.
    escaped = plain_text[:most].encode("utf-8", "backslashreplace").decode()
    return escaped[:most]


def plain_metrics(metrics: Mapping[Any, Any]) -> dict[str, Any]:
    """A copy of metrics in the order of their names; `NoNumber` stands for what is no number.

    Each mapping and list is read once, whatever it would say a second time.

    Raises:
        InputError: a name is no text, stands twice, or there are too many values or levels.
    """
    return _Copy().mapping(metrics, depth=0)


class _Copy:
    """Copies metrics and counts what was copied."""

    def __init__(self) -> None:
        self._seen = 0

    def mapping(self, metrics: Mapping[Any, Any], *, depth: int) -> dict[str, Any]:
        """A mapping in the order of its names."""
        self._count(depth)
        values = dict[str, Any]()
        for key, value in metrics.items():
            name = plain_name(key)
            require(name not in values, "each name of a metric once", f"{name[:60]!a} twice", _WAY_OUT)
            values[name] = self._value(value, depth=depth + 1)
        return {name: values[name] for name in sorted(values)}

    def _value(self, value: Any, *, depth: int) -> Any:
        self._count(depth)
        if isinstance(value, Mapping):
            return self.mapping(value, depth=depth)
        return self._numbers(value, depth=depth)

    def _numbers(self, value: Any, *, depth: int) -> Any:
        """A number, lists of numbers, or `NoNumber`."""
        self._count(depth)
        # Numbers of NumPy become Python's own, so that their type says nothing.
        if isinstance(value, bool | int | float | np.bool_ | np.number):
            return plain_number(value)
        if isinstance(value, list | tuple):
            return [self._numbers(part, depth=depth + 1) for part in value]
        if not hasattr(value, "__array__"):  # a range, say, which NumPy would write out first
            return NoNumber()
        try:
            array = as_array(value)
        except InputError:
            return NoNumber()
        require(array.size <= MOST_METRICS, f"at most {MOST_METRICS} numbers of metrics", array.size, _WAY_OUT)
        return self._numbers(array.tolist(), depth=depth)

    def _count(self, depth: int) -> None:
        self._seen += 1
        require(self._seen <= MOST_METRICS, f"at most {MOST_METRICS} values of metrics", "more", _WAY_OUT)
        require(depth <= DEEPEST, f"at most {DEEPEST} levels of metrics", "more", _WAY_OUT)


def plain_number(value: Any) -> Any:
    """A number as Python's int or float, without -0.0; `NoNumber` if it is complex."""
    if isinstance(value, bool | int | np.bool_ | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return 0.0 if number == 0 else number
    return NoNumber()


def whole_number(value: Any, *, what: str, most: int) -> int:
    """A whole number from 0 to `most`, as Python's own.

    Raises:
        InputError: it is none.
    """
    number = -1
    description = type(value).__name__[:40]
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        if abs(number) < 2**64:  # Python takes long to write a number of many digits
            description = repr(number)[:40]
    require(0 <= number <= most, f"{what}, a whole number from 0 to {most}", description, _WAY_OUT)
    return number


def holds_numbers_alone(metrics: Any) -> bool:
    """Whether a copy of metrics has finite numbers alone, in lists and in mappings that are not empty."""
    if isinstance(metrics, dict):
        return all(value != {} and holds_numbers_alone(value) for value in metrics.values())
    if isinstance(metrics, list):
        return all(map(holds_numbers_alone, metrics))
    if isinstance(metrics, int):  # of any size, as which a float would overflow
        return True
    return isinstance(metrics, float) and math.isfinite(metrics)
