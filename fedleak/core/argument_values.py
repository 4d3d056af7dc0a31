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
from collections.abc import Collection, Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from fedleak.core.checked_types import WrongObjectError, adapter
from fedleak.core.errors import InputError
from fedleak.core.parameters import parameters_of
from fedleak.core.type_words import described_type
from fedleak.core.value_limits import ARGUMENTS, CLASS_PATH, DEEPEST, restrictions_of
from fedleak_recorder.nearest import did_you_mean

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
        if not isinstance(values, Mapping) or self.depth > DEEPEST:
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
        where = self.where
        if name:
            where = f"{where}.{name}"
        inside = dataclasses.replace(self, where=where)
        try:
            return adapter(hint, self.trusts).validate_python(value, context=inside)
        except ValidationError as error:
            # The refusal of an object within the value says more than that the value does not fit.
            causes = [problem.get("ctx", {}).get("error") for problem in error.errors(include_url=False)]
            refusals = [cause.refusal for cause in causes if isinstance(cause, WrongObjectError)]
            if refusals:
                raise refusals[-1] from None
            expected = described_type(hint, trusts=self.trusts)
            if name:
                expected = f"{name}: {expected}"
            raise self.wrong(expected, repr(value)) from None

    def object(self, base: type[Any], value: Any) -> Any:
        """Object of a class, or of the subclass of it that the value names."""
        self.check_may_describe(base, value)
        inside = dataclasses.replace(self, depth=self.depth + 1)
        # The name of a class alone, with all arguments at their defaults.
        if isinstance(value, str) and self.trusts:
            return inside.build(self.class_named(base, value), {})
        if not isinstance(value, Mapping):
            raise self.wrong(described_type(base, trusts=self.trusts), repr(value))
        # Arguments by name, of the class itself.
        if CLASS_PATH not in value:
            if inspect.isabstract(base):
                raise self.wrong(f"{CLASS_PATH} of a {base.__name__}", dict(value))
            return inside.build(base, value)
        # A class below it, with its arguments.
        unknown_keys = set(value) - {CLASS_PATH, ARGUMENTS}
        name = value[CLASS_PATH]
        if unknown_keys or not isinstance(name, str):
            raise self.wrong(f"only {CLASS_PATH} and {ARGUMENTS} of a {base.__name__}", unknown_keys or name)
        return inside.build(self.class_named(base, name), value.get(ARGUMENTS) or {})

    def check_complete(self, kind: type, arguments: Collection[str]) -> None:
        """Refuses arguments among which a required one is missing."""
        missing = []
        for name, parameter in parameters_of(kind).items():
            if parameter.is_required and name not in arguments:
                missing.append(name)
        if not missing:
            return
        noun = "arguments" if len(missing) > 1 else "argument"
        raise InputError(
            expected=f"the {noun} {' and '.join(missing)} of {kind.__name__}, in {self.where}",
            found="none",
            way_out=self.how_to_give(kind, missing[0]),
        )

    def how_to_give(self, kind: type, name: str) -> str:
        """What to do about a missing argument."""
        return self.way_out

    def unknown_argument(self, kind: type, name: Any, argument_names: Iterable[str]) -> InputError:
        """The error about an argument that a class does not take."""
        names = list(argument_names)
        listed = f"Known: {', '.join(names) or 'none, as it takes no arguments'}. {self.way_out}".strip()
        return InputError(
            expected=f"the name of an argument of {kind.__name__}, in {self.where}",
            found=repr(name)[:100],
            way_out=did_you_mean(str(name), names, listed),
        )

    def wrong(self, expected: str, refused: Any) -> InputError:
        """The error about a value."""
        return InputError(expected=f"{expected}, in {self.where}", found=_shown(refused), way_out=self.way_out)


def check_fields(config: Any) -> None:
    """Checks the values of a dataclass against those of its types that are ranges or choices.

    Raises:
        ValueError: a value is out of its field's range, or not among its choices.
    """
    kind: type = type(config)
    for name, hint in _limited_fields(kind).items():
        value = getattr(config, name)
        try:
            adapter(hint, True).validate_python(value)
        except ValidationError:
            raise ValueError(f"expected {name}: {described_type(hint)}, got {value!r}") from None


@functools.cache
def _limited_fields(kind: type) -> dict[str, Any]:
    """Types of the fields of a dataclass that limit the values: ranges and choices, and lists of these."""
    hints = get_type_hints(kind)
    limited = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if _is_limited(hint):
            limited[field.name] = hint
    return limited


def _is_limited(hint: Any) -> bool:
    if get_origin(hint) is Literal or restrictions_of(hint):
        return True
    if get_origin(hint) in (Union, UnionType):
        return all(_is_limited(option) or option is NoneType for option in get_args(hint))
    return get_origin(hint) is tuple and _is_limited(get_args(hint)[0])


def _shown(refused: Any) -> str:
    """A wrong value in a message."""
    text = refused if isinstance(refused, str) else repr(refused)
    return " ".join(text.split())[:100]
