"""Universal binary JSON (UBJ) of a stranger as plain values and arrays, whose memory is bounded while it is read.

References:
    The format, https://ubjson.org; XGBoost writes its numbers in it since version 2.1.
"""

from typing import Any

import numpy as np

from fedleak_recorder.errors import InputError
from fedleak_recorder.trees.bounded_json import WAY_OUT, check_length

_DEEPEST = 32
"""Levels of lists and mappings; XGBoost's files have 8."""
_MOST_VALUES = 2 * 10**5
"""Values outside of typed lists, of which a tree has 25; each takes some hundred bytes."""
_NUMBERS = {b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8"}
"""Types of numbers by their marker; all are big-endian."""
_SIZES = (b"i", b"U", b"I", b"l", b"L")
"""Markers of whole numbers, which count entries and bytes."""
_CONSTANTS = {b"Z": None, b"T": True, b"F": False}


def read_ubj(content: bytes, *, where: str) -> Any:
    r"""A value from the bytes of UBJ: plain values, and an array of NumPy for each typed list.

    Args:
        content: the file.
        where: what it is, for errors.

    Raises:
        InputError: it is no UBJ, is nested too deeply, or holds too many values.

    Example:
        >>> read_ubj(b"{i\x01n[$U#i\x02\x07\x08}", where="an example")
        {'n': array([7, 8], dtype=uint8)}
    """
    check_length(content, where=where)
    reader = _Reader(content, where)
    value = reader.value(reader.take(1), 0)
    reader.check(reader.position == len(content), "nothing behind the value")
    return value


class _Reader:
    """Reads one value after the other; `position` only grows, so that every file ends."""

    def __init__(self, content: bytes, where: str) -> None:
        self.content = content
        self.where = where
        self.position = 0
        self._values = 0

    def check(self, condition: bool, expected: str) -> None:
        """Refuses the file unless `condition` holds."""
        if not condition:
            problem = f"another file, at byte {self.position}"
            raise InputError(expected=f"UBJ with {expected} in {self.where}", found=problem, way_out=WAY_OUT)

    def take(self, length: int) -> bytes:
        """The next bytes."""
        # Compared before anything is allocated.
        self.check(0 <= length <= len(self.content) - self.position, "more bytes")
        part = self.content[self.position : self.position + length]
        self.position += length
        return part

    def value(self, marker: bytes, depth: int) -> Any:
        """The value behind a marker."""
        self._values += 1
        self.check(self._values <= _MOST_VALUES, "fewer values")
        self.check(depth <= _DEEPEST, "fewer levels")
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in _NUMBERS:
            return self._number(marker)
        if marker == b"C":
            return self._text(1)
        if marker == b"S":
            return self._text(self._size())
        if marker == b"[":
            return self._list(depth + 1)
        if marker == b"{":
            return self._mapping(depth + 1)
        return self.check(False, "a known marker")

    def _number(self, marker: bytes) -> int | float:
        kind = np.dtype(_NUMBERS[marker])
        number: int | float = np.frombuffer(self.take(kind.itemsize), kind)[0].item()
        return number

    def _size(self) -> int:
        """A number of bytes or entries."""
        marker = self.take(1)
        self.check(marker in _SIZES, "a whole number as a size")
        size = int(self._number(marker))
        self.check(size >= 0, "a size of at least 0")
        return size

    def _text(self, length: int) -> str:
        part = self.take(length)
        try:
            return part.decode()
        except UnicodeDecodeError as error:
            found = f"{error.reason} at byte {self.position}"
            raise InputError(expected=f"UTF-8 in {self.where}", found=found, way_out=WAY_OUT) from None

    def _next_is(self, marker: bytes) -> bool:
        """Whether a marker comes next, which is then read."""
        is_next = self.content[self.position : self.position + 1] == marker
        self.position += is_next
        return is_next

    def _list(self, depth: int) -> Any:
        kind = b""
        if self._next_is(b"$"):
            kind = self.take(1)
            # A type without bytes, such as null, would let a count of a few bytes ask for any memory.
            self.check(kind in _NUMBERS, "lists of numbers, if they are typed")
            self.check(self.content[self.position : self.position + 1] == b"#", "a count of a typed list")
        if not self._next_is(b"#"):
            return self._open_list(depth)
        count = self._size()
        if kind:
            number_type = np.dtype(_NUMBERS[kind])
            part = self.take(count * number_type.itemsize)
            return np.frombuffer(part, number_type).astype(number_type.newbyteorder("="))
        # Every entry has at least its marker.
        self.check(count <= len(self.content) - self.position, "as many entries as it counts")
        return [self.value(self.take(1), depth) for _ in range(count)]

    def _open_list(self, depth: int) -> list[Any]:
        """Entries up to the closing bracket."""
        entries = []
        while not self._next_is(b"]"):
            entries.append(self.value(self.take(1), depth))
        return entries

    def _mapping(self, depth: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not self._next_is(b"}"):
            key = self._text(self._size())
            self.check(key not in entries, "no key twice")
            entries[key] = self.value(self.take(1), depth)
        return entries
