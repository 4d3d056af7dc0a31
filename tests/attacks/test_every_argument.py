"""Values of arguments that make no sense are refused by the argument's name, in every attack."""

import dataclasses
import typing

import pytest

from fedleak.core.attack import Attack
from fedleak.evaluation.registry import REGISTRY

pytestmark = pytest.mark.inventory

KINDS = sorted({kind for kind in REGISTRY.values() if dataclasses.is_dataclass(kind)}, key=lambda kind: kind.__name__)


def nonsense(kind: type[Attack]) -> list[tuple[str, object]]:
    """A text for each argument that has a range or some choices, and -1 for each other whole number."""
    types = typing.get_type_hints(kind, include_extras=True)
    values: list[tuple[str, object]] = []
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if typing.get_origin(types[field.name]) in (typing.Annotated, typing.Literal):
            values.append((field.name, "nonsense"))
        elif types[field.name] is int:
            values.append((field.name, -1))
    return values


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_impossible_values_are_refused(kind: type[Attack]) -> None:
    accepted: list[tuple[str, object]] = []
    for argument, value in nonsense(kind):
        try:
            kind(**{argument: value})
        except ValueError as error:
            if argument not in str(error):
                accepted.append((argument, str(error)))
        else:
            accepted.append((argument, value))
    assert not accepted
