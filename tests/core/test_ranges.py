"""Ranges of tuples of any length: each number is checked, from Python and from plain values."""

from dataclasses import dataclass

import pytest

from fedleak.core.ranges import PositiveInt, check_fields, typed_arguments


@dataclass(frozen=True)
class Lengths:
    after: tuple[PositiveInt, ...] = (1, 5)
    names: tuple[str, ...] = ("a",)
    most: PositiveInt | None = None


def test_every_number_of_a_tuple_is_checked() -> None:
    check_fields(Lengths())
    check_fields(Lengths(after=()))
    for wrong in ((1, 0), (-3,), (2.5,)):
        with pytest.raises(ValueError, match=r"each of after\W+0"):
            check_fields(Lengths(after=wrong))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="after"):
        check_fields(Lengths(after=3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="most"):
        check_fields(Lengths(most=0))


def test_plain_values_become_tuples_of_checked_numbers() -> None:
    assert typed_arguments(Lengths, {"after": [2, "7"], "names": ["x"]}) == {"after": (2, 7), "names": ("x",)}
    with pytest.raises(ValueError, match="after"):
        typed_arguments(Lengths, {"after": [2, 0]})
