"""Values of a constructor's arguments, checked and converted by the types that it declares.

pydantic reads numbers, texts, lists and mappings. Where the type of an argument is a class, the value describes an
object of it: its arguments by name, or ``class_path`` and ``init_args`` of a class below it. A `Reader` says which
classes these may be: those that a person names (`fedleak.core.named`), or those of a closed list
(`fedleak.core.named_by_strangers`).
"""

import abc
import dataclasses
import functools
import inspect
import math
import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MaxLen
from pydantic import (
    AllowInfNan,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    Strict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)

from fedleak.core.errors import InputError
from fedleak.core.parameters import parameters_of
from fedleak_recorder.nearest import did_you_mean

CLASS_PATH, ARGUMENTS = "class_path", "init_args"
LARGEST_SIZE = 10**8
"""Largest whole number of a stranger's file where the type is a range: sizes, numbers of epochs."""
_LARGEST_SEED = 2**64
"""Largest whole number of a stranger's file elsewhere, for seeds."""
_LARGEST_NUMBER = 1e30
_MOST_ENTRIES = 1000
"""Entries of a list or mapping, and characters of a text, in a stranger's file."""
_DEEPEST = 8
"""Levels of objects in objects, and of lists in lists."""
_LIMITS = {operator.gt: Gt, operator.ge: Ge, operator.lt: Lt, operator.le: Le}
LIMITS_IN_WORDS = {operator.gt: "above", operator.ge: "of at least", operator.lt: "below", operator.le: "of at most"}
"""What stands before the bound of a range in a message."""
_COLLECTIONS = (list, tuple, set, frozenset, dict)
_Made = TypeVar("_Made")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader(abc.ABC):
    """Reader of plain values that somebody has written.

    Attributes:
        where: what the values belong to, for messages.
        way_out: what the reader of a message can do about a wrong value.
        depth: number of objects around the one that is read.
    """

    where: str
    way_out: str
    depth: int = 0
    trusts: ClassVar[bool]
    """Whether the values may be large, be objects already, and name files."""

    @abc.abstractmethod
    def class_named(self, base: type[Any], name: str) -> type[Any]:
        """The class below `base` that a description names.

        Raises:
            InputError: there is none that this reader accepts.
        """

    @abc.abstractmethod
    def check_may_describe(self, base: type[Any], value: Any) -> None:
        """Refuses a description of an object whose class no plain values may give."""

    def build(self, kind: type[_Made], values: Any) -> _Made:
        """Object of a class from its arguments.

        Raises:
            InputError: an argument is unknown or missing, has a wrong type, or is out of range.
        """
        arguments = self.arguments(kind, values)
        self.check_complete(kind, arguments)
        try:
            return kind(**arguments)
        except InputError as error:
            raise self.wrong(error.expected, error.found) from error
        except (TypeError, ValueError, ArithmeticError) as error:
            raise self.wrong("arguments that go together", str(error)) from error

    def arguments(self, kind: type, values: Any) -> dict[str, Any]:
        """Arguments of a class in the types of its constructor; a missing one stays missing."""
        if not isinstance(values, Mapping) or self.depth > _DEEPEST:
            raise self.wrong("arguments by name", values)
        parameters = parameters_of(kind)
        arguments = {}
        for name, value in values.items():
            if name not in parameters:
                raise self.unknown_argument(kind, name, parameters)
            arguments[name] = self.argument(kind, name, value)
        return arguments

    def argument(self, kind: type, name: str, value: Any) -> Any:
        """Value of an argument of a class, converted to its type."""
        return self.value(parameters_of(kind)[name].hint, value, name)

    def value(self, hint: Any, value: Any, name: str) -> Any:
        """Value converted to a type; `name` is that of its argument, for messages."""
        inside = dataclasses.replace(self, where=f"{self.where}.{name}" if name else self.where)
        try:
            return _adapter(hint, self.trusts).validate_python(value, context=inside)
        except ValidationError as error:
            causes = [problem.get("ctx", {}).get("error") for problem in error.errors(include_url=False)]
            refusals = [cause.refusal for cause in causes if isinstance(cause, _WrongObjectError)]
            if refusals:
                raise refusals[-1] from None
            expected = described_type(hint, trusts=self.trusts)
            raise self.wrong(f"{name}: {expected}" if name else expected, repr(value)) from None

    def object(self, base: type[Any], value: Any) -> Any:
        """Object of a class, or of the subclass of it that the value names."""
        self.check_may_describe(base, value)
        below = dataclasses.replace(self, depth=self.depth + 1)
        if isinstance(value, str) and self.trusts:
            return below.build(self.class_named(base, value), {})
        if not isinstance(value, Mapping):
            raise self.wrong(described_type(base, trusts=self.trusts), repr(value))
        if CLASS_PATH not in value:
            if inspect.isabstract(base):
                raise self.wrong(f"{CLASS_PATH} of a {base.__name__}", dict(value))
            return below.build(base, value)
        others = set(value) - {CLASS_PATH, ARGUMENTS}
        name = value[CLASS_PATH]
        if others or not isinstance(name, str):
            raise self.wrong(f"only {CLASS_PATH} and {ARGUMENTS} of a {base.__name__}", others or name)
        return below.build(self.class_named(base, name), value.get(ARGUMENTS) or {})

    def check_complete(self, kind: type, arguments: Collection[str]) -> None:
        """Refuses arguments among which a required one is missing."""
        missing = [name for name, own in parameters_of(kind).items() if own.is_required and name not in arguments]
        if missing:
            named = f"argument{'s' if len(missing) > 1 else ''} {' and '.join(missing)}"
            raise InputError(
                expected=f"the {named} of {kind.__name__}, in {self.where}",
                found="none",
                way_out=self.how_to_give(kind, missing[0]),
            )

    def how_to_give(self, kind: type, name: str) -> str:
        """What to do about a missing argument."""
        return self.way_out

    def unknown_argument(self, kind: type, name: Any, known: Iterable[str]) -> InputError:
        """The error about an argument that a class does not take."""
        names = list(known)
        listed = f"Known: {', '.join(names) or 'none, as it takes no arguments'}. {self.way_out}".strip()
        return InputError(
            expected=f"the name of an argument of {kind.__name__}, in {self.where}",
            found=repr(name)[:100],
            way_out=did_you_mean(str(name), names, listed),
        )

    def wrong(self, expected: str, found: Any) -> InputError:
        """The error about a value."""
        return InputError(expected=f"{expected}, in {self.where}", found=_shown(found), way_out=self.way_out)


class _WrongObjectError(ValueError):
    """Carries the error about a described object through pydantic, which gives other types of a union their turn."""

    def __init__(self, refusal: InputError) -> None:
        self.refusal = refusal
        super().__init__(str(refusal))


def check_fields(config: Any) -> None:
    """Checks the values of a dataclass against those of its types that are ranges or choices.

    Raises:
        ValueError: a value is out of its field's range, or not among its choices.
    """
    kind: type = type(config)
    for name, hint in _limited_fields(kind).items():
        value = getattr(config, name)
        try:
            _adapter(hint, True).validate_python(value)
        except ValidationError:
            raise ValueError(f"expected {name}: {described_type(hint)}, got {value!r}") from None


@functools.cache
def _limited_fields(kind: type) -> dict[str, Any]:
    """Types of the fields of a dataclass that limit the values: ranges and choices, and lists of these."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if _is_limited(hints[field.name])}


def _is_limited(hint: Any) -> bool:
    if get_origin(hint) is Literal or restrictions_of(hint):
        return True
    if get_origin(hint) in (Union, UnionType):
        return all(_is_limited(option) or option is NoneType for option in get_args(hint))
    return get_origin(hint) is tuple and _is_limited(get_args(hint)[0])


def restrictions_of(hint: Any) -> Sequence[tuple[Callable[[Any, Any], bool], float]]:
    """Comparisons that a number of one of the types of `fedleak.core.ranges` fulfils; none for other types."""
    return getattr(hint, "_restrictions", ())


def _is_number(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, int | float) and hint is not bool


@functools.cache
def _adapter(hint: Any, trusts: bool) -> TypeAdapter[Any]:
    config = ConfigDict(arbitrary_types_allowed=True, coerce_numbers_to_str=trusts)
    return TypeAdapter(_checkable(hint, trusts), config=config)


def _checkable(hint: Any, trusts: bool) -> Any:
    """Type that pydantic reads values of a type by: a `Reader` makes objects, and limits apply to strangers' files."""
    origin = hint if hint in _COLLECTIONS else get_origin(hint)
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
    if trusts:
        return hint if origin is Callable else Any
    return Annotated[Any, PlainValidator(_refused)]


def _checkable_class(hint: type[Any], trusts: bool) -> Any:
    if hint is bool:
        return bool if trusts else Annotated[bool, Strict()]
    if hint is str:
        return str if trusts else Annotated[str, Strict(), MaxLen(_MOST_ENTRIES - 1)]
    if _is_number(hint):
        return _checkable_number(hint, trusts)
    if issubclass(hint, os.PathLike):
        return Path if trusts else Annotated[Any, PlainValidator(_refused)]
    return Annotated[Any, PlainValidator(functools.partial(_object, hint))]


def _checkable_number(hint: Any, trusts: bool) -> Any:
    number = int if issubclass(hint, int) else float
    limits: list[Any] = [_LIMITS[comparison](limit) for comparison, limit in restrictions_of(hint)]
    if not trusts:
        largest = _largest(hint)
        limits += [Strict(), Ge(-largest), Le(largest)]
        limits += [AllowInfNan(False)] if number is float else []
    return Annotated[(number, *limits, BeforeValidator(_no_truth_value))]


def _largest(hint: Any) -> float:
    """Largest number of a type in a stranger's file."""
    if issubclass(hint, float):
        return _LARGEST_NUMBER
    return _LARGEST_SEED if hint is int else LARGEST_SIZE


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
    if not isinstance(value, list | tuple) or len(value) > _MOST_ENTRIES:
        raise ValueError("no list, or too long a one")
    return value


def _pairs(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError("no mapping")
    return value


def _few_pairs(value: Any) -> Any:
    if len(_pairs(value)) > _MOST_ENTRIES:
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
    reader = cast(Reader, info.context)
    if reader.trusts and isinstance(value, base):
        return value
    try:
        return reader.object(base, value)
    except InputError as error:
        raise _WrongObjectError(error) from None


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether a value of any type consists of numbers and texts alone, and describes no object."""
    if isinstance(value, list | tuple | Mapping):
        if depth >= _DEEPEST or len(value) > _MOST_ENTRIES or CLASS_PATH in value:
            return False
        parts = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
        return all(is_plain(part, depth + 1) for part in parts)
    if isinstance(value, str):
        return len(value) < _MOST_ENTRIES
    if type(value) is float:
        return math.isfinite(value) and abs(value) <= _LARGEST_NUMBER
    return value is None or type(value) is bool or (type(value) is int and abs(value) <= _LARGEST_SEED)


def described_type(hint: Any, *, trusts: bool = True) -> str:
    """What values a type has, in words.

    >>> from fedleak.core.ranges import PositiveInt, UnitInterval
    >>> described_type(PositiveInt | None), described_type(UnitInterval)
    ('a whole number above 0 or null', 'a number of at least 0 and of at most 1')
    """
    origin = hint if hint in _COLLECTIONS else get_origin(hint)
    options = get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(described_type(option, trusts=trusts) for option in options)
    if origin is Literal:
        return f"one of {', '.join(map(str, options))}"
    if _is_number(hint):
        return _described_number(hint, trusts)
    if hint in _NAMED:
        return _NAMED[hint]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "values by name"
    if isinstance(origin, type) and issubclass(origin, Collection):
        if origin is tuple and options and options[-1] is not Ellipsis:
            return f"a list of {len(options)} values"
        return f"a list, each {described_type(options[0] if options else Any, trusts=trusts)}"
    name = getattr(hint, "__name__", str(hint))
    if isinstance(hint, type) and not issubclass(hint, os.PathLike):
        return f"the {CLASS_PATH} of a {name}" if inspect.isabstract(hint) else f"the arguments of a {name} by name"
    return f"a {name}" if trusts else f"no value, because a file may not give a {name}"


_NAMED = {
    bool: "true or false",
    str: "a text",
    None: "null",
    NoneType: "null",
    Any: "a number, a text, or a list or mapping of them",
    object: "a number, a text, or a list or mapping of them",
}


def _described_number(hint: Any, trusts: bool) -> str:
    number = "a whole number" if issubclass(hint, int) else "a number"
    limits = [f"{LIMITS_IN_WORDS[comparison]} {limit:g}" for comparison, limit in restrictions_of(hint)]
    if not trusts and not any(comparison in (operator.lt, operator.le) for comparison, _ in restrictions_of(hint)):
        largest = _largest(hint)
        limits.append(f"up to {largest:g}" if isinstance(largest, float) else f"up to {largest:,}")
    return " ".join([number, " and ".join(limits)]).strip()


def _shown(found: Any) -> str:
    """A wrong value in a message."""
    shown = found if isinstance(found, str) else repr(found)
    return " ".join(shown.split())[:100]
