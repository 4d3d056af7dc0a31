"""Values of a file are read into dataclasses, or refused in one line that says where they stand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from fedleak_recorder.errors import InputError
from fedleak_recorder.fields_schema import schema_of
from fedleak_recorder.plain_fields import NAME, FieldError, option, read_fields


@dataclass(frozen=True, kw_only=True)
class Part:
    share: float | None = option("a share", default=None, low=0, below=1)
    mode: Literal["a", "b"] = option("a mode", default="a")


@dataclass(frozen=True, kw_only=True)
class File:
    names: tuple[str, ...] = option("names", pattern=NAME, distinct=True)
    counts: Mapping[str, int] = option("counts", default_factory=dict, low=1)
    part: Part = option("a part", default=Part())
    either: Mapping[str, Any] | str = option("a mapping or a text", default="")

    def __post_init__(self) -> None:
        if self.either == "wrong":
            raise FieldError("either", "another text")


def read(**content: Any) -> File:
    return read_fields(File, content, "the file", way_out="Correct it.", file="a.yaml")


def test_values_are_read_by_their_types() -> None:
    assert read(names=["x", "y"]) == File(names=("x", "y"))
    whole = read(names=[], counts={"n": 2}, part={"share": 0, "mode": "b"}, either={"k": [1]})
    assert whole == File(names=(), counts={"n": 2}, part=Part(share=0.0, mode="b"), either={"k": [1]})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "expected the key names in the file; found none in a.yaml. Correct it."),
        ({"names": [], "count": {}}, "found 'count' in a.yaml. Did you mean counts?"),
        ({"names": "x"}, "expected a list as the file.names; found 'x'"),
        ({"names": ["x", ""]}, "expected a text as the file.names[1]; found ''"),
        ({"names": ["x", "x"]}, "values that stand once as the file.names"),
        ({"names": [], "counts": {"n": 0}}, "a whole number of at least 1 as the file.counts.n; found 0"),
        ({"names": [], "counts": {"n": True}}, "found True"),
        ({"names": [], "part": {"share": 1}}, "a number of at least 0 and below 1 as the file.part.share"),
        ({"names": [], "part": {"share": float("nan")}}, "found nan"),
        ({"names": [], "part": {"share": "0.5"}}, "found '0.5'"),
        ({"names": [], "part": {"mode": "c"}}, "one of a, b as the file.part.mode"),
        ({"names": [], "part": 3}, "keys and values as the file.part"),
        ({"names": [], "either": 3}, "a text as the file.either; found 3"),
        ({"names": [], "either": "wrong"}, "another text as the file.either; found 'wrong'"),
    ],
)
def test_mistakes_are_said_in_one_line(content: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        read(**content)
    assert message in str(error.value)


def test_the_schema_says_what_is_read() -> None:
    schema = schema_of(Part)
    share = schema["properties"]["share"]["anyOf"][0]
    assert share == {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
    assert schema["properties"]["mode"] == {"description": "a mode", "enum": ["a", "b"], "default": "a"}
