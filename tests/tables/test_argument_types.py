"""What fits the type of an argument, and its name in words."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from lightning.pytorch.loggers import WandbLogger

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.ranges import AtLeastTwo, NonNegativeFloat, PositiveInt, UnitInterval
from fedleak.defenses.base import Defense
from fedleak.modules.learners.fncf import FNCF
from fedleak.server.model_manipulation import ModelManipulation
from fedleak.tables.argument_types import (
    described,
    entry_hints,
    fits,
    is_any,
    is_class,
    is_fields,
    is_mapping,
    is_out_of_range,
    is_required,
    is_sequence,
    loaded,
    members,
    passed_parameters,
    range_of,
)


def test_arguments_that_a_constructor_passes_on_are_its_own() -> None:
    arguments = passed_parameters(FNCF)
    assert {"user_dim", "local", "defenses", "seed"} <= {*arguments}
    assert not is_required(arguments["user_dim"])
    # Lightning's logger passes the rest on to `wandb.init`.
    assert {"project", "entity"} <= {*passed_parameters(WandbLogger)}


@pytest.mark.parametrize(
    ("hint", "right", "wrong"),
    [
        (int, (3, "3", "-1", 3.0), ("x", 1.5, "1.5", True, [3])),
        (float, (3, "1e-3", 0.5), ("x", False, {})),
        (bool, (True, "false", "off"), ("maybe", 3)),
        (PositiveInt, (1, "7"), (0, "-1", 1.5, "a")),
        (AtLeastTwo, (2,), (1,)),
        (NonNegativeFloat, (0, "0.5"), (-0.1, "-1")),
        (UnitInterval, (0, 1, "0.5"), (1.1, -0.1)),
        (Literal["sgd", "adam"], ("sgd",), ("adamm", 3, ["sgd"])),
        (Literal[64, 32], (64, "32"), (8,)),
        (str, ("text", "3"), ([], {}, 3, True)),
    ],
)
def test_a_value_fits_or_not(hint: Any, right: tuple[Any, ...], wrong: tuple[Any, ...]) -> None:
    assert [fits(hint, value) for value in right] == [True] * len(right)
    assert [fits(hint, value) for value in wrong] == [False] * len(wrong)


def test_a_number_out_of_range_is_told_from_no_number() -> None:
    assert is_out_of_range(PositiveInt, "0")
    assert not is_out_of_range(PositiveInt, "x")
    assert not is_out_of_range(PositiveInt, 1.5)
    assert not is_out_of_range(Literal["a"], 3)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (PositiveInt, "a whole number above 0"),
        (UnitInterval, "a number from 0 to 1"),
        (Literal["a", "b"], "one of a, b"),
        (tuple[int, int, int], "a list of 3 values"),
        (tuple[int, ...], "a list"),
        (dict[str, int], "values by name"),
        (Defense, "the name or path of a Defense"),
        (bool, "true or false"),
    ],
)
def test_a_type_has_words(hint: Any, words: str) -> None:
    assert described(hint) == words


def test_kinds_of_types() -> None:
    assert is_fields(LocalTraining)
    assert is_class(ModelManipulation)
    assert not is_fields(ModelManipulation)  # which of its subclasses, only a name says
    assert not is_class(Path)
    assert is_any(Path)
    assert is_any(Any)
    assert is_sequence(Sequence[Defense])
    assert is_sequence(Iterable[Defense])
    assert not is_sequence(dict[str, int])
    assert is_mapping(dict[str, int])
    assert not is_any(dict)
    assert range_of(str) == ""


def test_members_and_entries() -> None:
    assert members(int | list[float] | None) == [int, list[float]]
    assert entry_hints(list[int], 2) == [int, int]
    assert entry_hints(tuple[int, str], 5) == [int, str]


def test_a_text_is_read_as_yaml_where_it_is_some() -> None:
    assert loaded("[1, a]") == [1, "a"]
    assert loaded("a: b: c") == "a: b: c"
    assert loaded(3) == 3
