"""The error for what a caller gives and nobody can use."""

from functools import partial

_LONGEST = 800
"""Maximum length of a part of a message: a value or a path in full, but not a line of 200 MB."""


class InputError(Exception):
    """Input that cannot be used; fedleak's commands print its message and end with exit status 2.

    Args:
        expected: what was needed, e.g. ``"4 tab-separated fields"``.
        found: what was there instead, with file and line if there is one.
        way_out: how to fix it.

    Example:
        >>> from fedleak_recorder import InputError
        >>> print(InputError(expected="4 fields", found="3 in line 17", way_out="Add the rating."))
        expected 4 fields; found 3 in line 17. Add the rating.
    """

    def __init__(self, *, expected: str, found: str, way_out: str) -> None:
        self.expected = expected
        self.found = found
        self.way_out = way_out
        super().__init__(f"expected {_cut(expected)}; found {_cut(found)}. {way_out}")

    def __reduce__(self) -> tuple[object, ...]:
        return partial(InputError, expected=self.expected, found=self.found, way_out=self.way_out), ()


def require(condition: object, expected: str, found: object, way_out: str) -> None:
    """Raises an `InputError`, with `found` as text, unless `condition` holds."""
    if not condition:
        raise InputError(expected=expected, found=str(found), way_out=way_out)


def _cut(text: str) -> str:
    """A long text without its middle; the location is at the end."""
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} ... {text[-half:]}"
