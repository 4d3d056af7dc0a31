"""Types of arguments as pydantic reads values by them: it makes objects by a `Reader`, and bounds strangers' values."""

import functools
import operator
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen
from pydantic import AllowInfNan, BeforeValidator, ConfigDict, PlainValidator, Strict, TypeAdapter, ValidationInfo

from fedleak.core.errors import InputError
from fedleak.core.type_words import COLLECTIONS
from fedleak.core.value_limits import MOST_ENTRIES, is_number, is_plain, largest_number, restrictions_of

if TYPE_CHECKING:
    from fedleak.core.argument_values import Reader

_LIMITS = {operator.gt: Gt, operator.ge: Ge, operator.lt: Lt, operator.le: Le}


class WrongObjectError(ValueError):
    """Carries the error about a described object through pydantic, which gives other types of a union their turn."""

    def __init__(self, refusal: InputError) -> None:
        self.refusal = refusal
        super().__init__(str(refusal))


@functools.cache
def adapter(hint: Any, trusts: bool) -> TypeAdapter[Any]:
    """What checks and converts values of a type, of a person (`trusts`) or of a stranger; a `Reader` is its context."""
    config = ConfigDict(arbitrary_types_allowed=True, coerce_numbers_to_str=trusts)
    return TypeAdapter(_checkable(hint, trusts), config=config)


def _checkable(hint: Any, trusts: bool) -> Any:
    """Type that pydantic reads values of a type by: a `Reader` makes objects, and limits apply to strangers' files."""
    origin = hint if hint in COLLECTIONS else get_origin(hint)
    options = get_args(hint)
    if origin in (Union, UnionType):
        return Union[tuple(_checkable(option, trusts) for option in options)]  # noqa: UP007
    if origin is Literal:
        return Annotated[hint, BeforeValidator(functools.partial(_choice, options))]
    if hint in (None, NoneType):
        return None
    if hint in (Any, object):
        return Any if trusts else Annotated[Any, PlainValidator(_plain_value)]
    if isinstance(origin, type) and issubclass(origin, Collection):
        return _checkable_collection(origin, options, trusts)
    if isinstance(hint, type):
        return _checkable_class(hint, trusts)
    # Functions and type variables: a person may give them from Python, a file has no form for them.
    if trusts:
        return hint if origin is Callable else Any
    return Annotated[Any, PlainValidator(_refused)]


def _checkable_class(hint: type[Any], trusts: bool) -> Any:
    if hint is bool:
        return bool if trusts else Annotated[bool, Strict()]
    if hint is str:
        return str if trusts else Annotated[str, Strict(), MaxLen(MOST_ENTRIES - 1)]
    if is_number(hint):
        return _checkable_number(hint, trusts)
    if issubclass(hint, os.PathLike):
        return Path if trusts else Annotated[Any, PlainValidator(_refused)]
    return Annotated[Any, PlainValidator(functools.partial(_object, hint))]


def _checkable_number(hint: Any, trusts: bool) -> Any:
    number = int if issubclass(hint, int) else float
    limits: list[Any] = [_LIMITS[comparison](limit) for comparison, limit in restrictions_of(hint)]
    if not trusts:
        largest = largest_number(hint)
        # Of two limits of a kind pydantic checks the last, so the type's own, which are narrower, come after these.
        limits = [Strict(), Ge(-largest), Le(largest), *limits]
        if number is float:
            limits.append(AllowInfNan(False))
    # Python's bool is an int, which pydantic would take for 0 or 1.
    return Annotated[(number, *limits, BeforeValidator(_no_truth_value))]


def _checkable_collection(origin: Any, options: Sequence[Any], trusts: bool) -> Any:
    if issubclass(origin, Mapping):
        pair = tuple(_checkable(option, trusts) for option in options or (str, Any))
        return Annotated[GenericAlias(dict, pair), BeforeValidator(_pairs if trusts else _few_pairs)]
    are_entries = BeforeValidator(_entries if trusts else _few_entries)
    if origin is tuple and options and options[-1] is not Ellipsis:
        parts = tuple(_checkable(option, trusts) for option in options)
        return Annotated[GenericAlias(tuple, parts), are_entries]
    entry = _checkable(options[0] if options else Any, trusts)
    if origin in (set, frozenset):
        return Annotated[GenericAlias(origin, (entry,)), are_entries]
    # A Sequence becomes a tuple, which nobody changes; every other collection a list.
    if origin is not list and issubclass(origin, Sequence):
        return Annotated[GenericAlias(tuple, (entry, ...)), are_entries]
    return Annotated[GenericAlias(list, (entry,)), are_entries]


def _choice(choices: Sequence[Any], value: Any) -> Any:
    """A value among choices: 1 is neither True nor 1.0."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError("none of the choices")
    return value


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("true and false are no numbers")
    return value


def _entries(value: Any) -> Any:
    if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
        raise ValueError("no list")
    return value


def _few_entries(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) > MOST_ENTRIES:
        raise ValueError("no list, or too long a one")
    return value


def _pairs(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError("no mapping")
    return value


def _few_pairs(value: Any) -> Any:
    if len(_pairs(value)) > MOST_ENTRIES:
        raise ValueError("too many entries")
    return value


def _plain_value(value: Any) -> Any:
    if not is_plain(value):
        raise ValueError("no plain value")
    return value


def _refused(_value: Any) -> Any:
    raise ValueError("a file may not give this")


def _object(base: type[Any], value: Any, info: ValidationInfo) -> Any:
    """The object that a value describes."""
    reader = cast("Reader", info.context)
    if reader.trusts and isinstance(value, base):
        return value
    try:
        return reader.object(base, value)
    except InputError as error:
        # pydantic catches only ValueErrors, and then tries the other types of a union.
        raise WrongObjectError(error) from None
