"""Types of arguments are described in words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from fedleak.core.ranges import OpenUnitInterval, PositiveFloat, PositiveInt, UnitInterval
from fedleak.core.type_words import described_type


class Margin:
    """A class with a constructor."""


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (PositiveInt, "a whole number above 0"),
        (PositiveFloat | None, "a number above 0 or null"),
        (OpenUnitInterval, "a number above 0 and below 1"),
        (UnitInterval, "a number of at least 0 and of at most 1"),
        (Literal["a", 2], "one of a, 2"),
        (tuple[int, int], "a list of 2 values"),
        (Sequence[bool], "a list, each true or false"),
        (Mapping[str, int], "values by name"),
        (Path, "a Path"),
        (Margin, "the arguments of a Margin by name"),
    ],
)
def test_types_in_words(hint: Any, words: str) -> None:
    assert described_type(hint) == words
