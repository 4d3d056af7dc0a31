"""Values of arguments are checked by their types, in words, from Python and from plain values."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from fedleak.core import named
from fedleak.core.argument_values import check_fields
from fedleak.core.errors import InputError
from fedleak.core.ranges import PositiveInt


@dataclass(frozen=True)
class Lengths:
    after: tuple[PositiveInt, ...] = (1, 5)
    names: tuple[str, ...] = ("a",)
    most: PositiveInt | None = None


def test_every_number_of_a_tuple_is_checked() -> None:
    check_fields(Lengths())
    check_fields(Lengths(after=()))
    for wrong in ((1, 0), (-3,), (2.5,)):
        with pytest.raises(ValueError, match="after: a list, each a whole number above 0"):
            check_fields(Lengths(after=wrong))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="after"):
        check_fields(Lengths(after=3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="most"):
        check_fields(Lengths(most=0))


def test_plain_values_become_tuples_of_checked_numbers() -> None:
    lengths = named.build(Lengths, {"after": [2, "7"], "names": ["x"]}, where="a test")
    assert lengths == Lengths(after=(2, 7), names=("x",))
    with pytest.raises(InputError, match="after"):
        named.build(Lengths, {"after": [2, 0]}, where="a test")


@pytest.mark.parametrize(
    ("hint", "given", "value"),
    [
        (float, "1e-3", 0.001),
        (PositiveInt | None, None, None),
        (str, 3, "3"),
        (Literal[1, 2], 2, 2),
        (list[int], (1, 2), [1, 2]),
        (Path | None, "a", Path("a")),
        (Any, {"x": [1]}, {"x": [1]}),
    ],
)
def test_values_are_converted(hint: Any, given: Any, value: Any) -> None:
    assert named.value(hint, given, where="a test", way_out="-") == value


@pytest.mark.parametrize(
    ("hint", "given"),
    [(int, True), (int, 2.5), (float, "x"), (Literal[1, 2], True), (tuple[int, ...], "12"), (tuple[int, int], [1])],
)
def test_other_values_are_refused(hint: Any, given: Any) -> None:
    with pytest.raises(InputError, match="in a test; found"):
        named.value(hint, given, where="a test", way_out="-")
