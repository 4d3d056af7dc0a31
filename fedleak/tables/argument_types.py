"""Types of a constructor's arguments, as a check of a configuration needs them: what fits, and what to call it."""

import dataclasses
import inspect
import operator
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from jsonargparse._parameter_resolvers import ParamData, get_signature_parameters

from fedleak.core.bounded_yaml import load_yaml
from fedleak.core.type_words import LIMITS_IN_WORDS
from fedleak.core.value_limits import restrictions_of

_SCALARS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}
_NOT_BUILT = {*sys.stdlib_module_names, "torch", "numpy"} - {"__main__"}
"""Packages whose classes are values of their own, such as a path or a data type, rather than built from arguments."""


@cache
def passed_parameters(kind: type) -> dict[str, ParamData]:
    """Arguments of a class's constructor by name, with those that it passes on to other functions.

    `fedleak.core.parameters.parameters_of` reads signatures alone: what the constructor of a library passes on in its
    body, such as a logger's options, is found here by jsonargparse, from the source.
    """
    parameters = get_signature_parameters(kind, logger=False)
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {parameter.name: parameter for parameter in parameters if parameter.kind not in variable}


def is_required(parameter: ParamData) -> bool:
    """Whether an argument has no default."""
    return parameter.default is inspect.Parameter.empty


def members(hint: Any) -> list[Any]:
    """Types that a type accepts: those of a union without None, or the type alone.

    >>> members(int | list[int] | None)
    [<class 'int'>, list[int]]
    """
    if get_origin(hint) not in (Union, UnionType):
        return [hint]
    types: list[Any] = []
    for option in get_args(hint):
        if option is not NoneType:
            types += members(option)
    return types


def is_mapping(hint: Any) -> bool:
    """Whether a type is that of values by name."""
    origin = get_origin(hint) or hint
    return isinstance(origin, type) and issubclass(origin, Mapping)


def is_sequence(hint: Any) -> bool:
    """Whether a type is a list, a tuple, a set, or a supertype of them with the type of its entries."""
    origin = get_origin(hint)
    is_collection = isinstance(origin, type) and (issubclass(origin, Collection) or origin is Iterable)
    return is_collection and not is_mapping(hint)


def entry_hints(hint: Any, number: int) -> list[Any]:
    """Type of each of a number of entries of a sequence."""
    options = get_args(hint)
    if has_fixed_length(hint):
        return list(options)
    if not options:
        return [Any] * number
    return [options[0]] * number


def has_fixed_length(hint: Any) -> bool:
    """Whether a type is a tuple of a certain number of values."""
    return get_origin(hint) is tuple and Ellipsis not in get_args(hint)


def is_class(hint: Any) -> bool:
    """Whether a type is a class that is built from arguments."""
    if not isinstance(hint, type) or get_origin(hint) is not None:
        return False
    if hint in _SCALARS or restrictions_of(hint):
        return False
    return hint.__module__.partition(".")[0] not in _NOT_BUILT


def is_fields(hint: Any) -> bool:
    """Whether a type is a dataclass, whose fields may be given without its name."""
    return is_class(hint) and dataclasses.is_dataclass(hint) and not inspect.isabstract(hint)


def is_scalar(hint: Any) -> bool:
    """Whether a type is a text, a truth, a number or one of several values."""
    return get_origin(hint) is Literal or hint in (str, bool, int, float) or bool(restrictions_of(hint))


def is_any(hint: Any) -> bool:
    """Whether nothing is known of what a type accepts."""
    return not (is_scalar(hint) or is_sequence(hint) or is_mapping(hint) or is_class(hint))


def loaded(value: Any) -> Any:
    """Value of a text of the command line, or of a configuration, as YAML; the text itself where it is none."""
    if not isinstance(value, str):
        return value
    try:
        return load_yaml(value)
    except ValueError:
        return value


def fits(hint: Any, value: Any) -> bool:
    """Whether a single value is one of a scalar type; a text stands for the number or truth that it spells.

    >>> fits(int, "3"), fits(int, "x"), fits(Literal["sgd", "adam"], "adamm")
    (True, False, False)
    """
    if isinstance(value, Mapping | list):
        return False
    if get_origin(hint) is Literal:
        # Of a truth, YAML has several spellings, such as `off`.
        return isinstance(value, bool) or str(value) in [str(choice) for choice in get_args(hint)]
    if hint is str:
        return isinstance(value, str)
    if hint is bool:
        return isinstance(loaded(value), bool)
    number = _number(hint, value)
    return number is not None and _is_in_range(hint, number)


def is_out_of_range(hint: Any, value: Any) -> bool:
    """Whether a value is a number of the right kind, but too large or too small."""
    if not (restrictions_of(hint) or hint in (int, float)):
        return False
    number = _number(hint, value)
    return number is not None and not _is_in_range(hint, number)


def choices_of(hint: Any) -> list[str]:
    """Values of a ``Literal`` as texts; none for other types."""
    if get_origin(hint) is not Literal:
        return []
    return [str(choice) for choice in get_args(hint)]


def described(hint: Any) -> str:
    """What a type accepts, in words.

    >>> described(int), described(Literal["sgd", "adam"]), described(tuple[int, int])
    ('a whole number', 'one of sgd, adam', 'a list of 2 values')
    """
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if has_fixed_length(hint):
        return f"a list of {len(get_args(hint))} values"
    if is_sequence(hint):
        return "a list"
    if is_mapping(hint):
        return "values by name"
    if restrictions_of(hint):
        number = _SCALARS[hint._type]
        return f"{number} {range_of(hint)}"
    if is_fields(hint):
        return f"values by name ({', '.join(passed_parameters(hint))})"
    return _SCALARS.get(hint) or f"the name or path of a {getattr(hint, '__name__', hint)}"


def range_of(hint: Any) -> str:
    """Range of a type of numbers, in words; empty for a type without one.

    >>> from fedleak.core.ranges import PositiveInt, UnitInterval
    >>> range_of(PositiveInt), range_of(UnitInterval)
    ('above 0', 'from 0 to 1')
    """
    comparisons = [compare for compare, _ in restrictions_of(hint)]
    if comparisons == [operator.ge, operator.le]:
        lowest, highest = [bound for _, bound in restrictions_of(hint)]
        return f"from {lowest:g} to {highest:g}"
    bounds = [f"{LIMITS_IN_WORDS[compare]} {bound:g}" for compare, bound in restrictions_of(hint)]
    and_or_or = getattr(hint, "_join", "and")
    return f" {and_or_or} ".join(bounds)


def _number(hint: Any, value: Any) -> float | None:
    """Number that a value is or spells, whole where the type is; None for others."""
    if isinstance(value, bool):
        return None
    is_whole = hint is int or getattr(hint, "_type", None) is int
    try:
        number = int(value) if is_whole else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    # 3.0 is the whole number 3, 3.5 is none; int() would cut it.
    if is_whole and isinstance(value, float) and number != value:
        return None
    return number


def _is_in_range(hint: Any, number: float) -> bool:
    """Whether a number meets the restrictions of a type, all of them or, for some types, one."""
    within = [compare(number, bound) for compare, bound in restrictions_of(hint)]
    if getattr(hint, "_join", "and") == "or":
        return any(within)
    return all(within)
