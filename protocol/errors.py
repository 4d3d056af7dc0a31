"""The one error that a person's input can cause."""

_LONGEST = 800
"""Characters of a part of a message: a value or a path in full, but not a line of 200 MB."""


class InputError(Exception):
    """Something that a person gave cannot be used; the command ends with exit status 2 and no traceback.

    Args:
        expected: what was needed, e.g. ``"4 tab-separated fields"``.
        found: what was there instead, with file and line where there is one.
        way_out: what the person can do about it.
    """

    def __init__(self, *, expected: str, found: str, way_out: str) -> None:
        self.expected = expected
        self.found = found
        self.way_out = way_out
        super().__init__(f"expected {_cut(expected)}; found {_cut(found)}. {way_out}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.expected, self.found, self.way_out)


def _cut(text: str) -> str:
    """A long text without its middle; where it was found stands at the end."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def _rebuild(expected: str, found: str, way_out: str) -> InputError:
    return InputError(expected=expected, found=found, way_out=way_out)


def input_error_in(error: BaseException | None) -> InputError | None:
    """The person's error that a library wrapped in errors of its own, None where there is none."""
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error
