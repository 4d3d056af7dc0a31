"""Objects from the plain values of a stranger's file: nothing that the file names is imported, opened or evaluated.

The type of each argument decides what its value may be. Where the type is a class, the value names one of a closed
list: the classes of this project that the argument accepts, and those that the user's own code has defined.
"""

import dataclasses
import importlib
import inspect
import math
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedleak.core.additions import room
from fedleak.core.class_paths import classes_in
from fedleak.core.errors import InputError
from fedleak.core.moved import current_path
from fedleak.training.lightning.hyper_parameters import argument_names, class_path, plain

_LARGEST_WHOLE, _LARGEST_SEED, _LARGEST_NUMBER, _MOST_ENTRIES, _DEEPEST = 10**8, 2**64, 1e30, 1000, 8
_CLASS_PATH, _ARGUMENTS = "class_path", "init_args"
_ROOMS = frozenset(
    f"fedleak.{room}" for room in ("attacks", "client", "defenses", "evaluation", "modules", "server", "training")
)
"""Packages of this project with classes that a file may name."""
_ADDED_IN = {"fedleak.training": "modules"}
"""Folder of additions with the classes of a base, where they lie in another package than the base."""
_Made = TypeVar("_Made")


def from_plain(kind: type[_Made], values: Any, *, where: str, way_out: str) -> _Made:
    """Object of a class from plain values, each checked against the type of its argument.

    Args:
        kind: the class.
        values: values by argument; a missing one has its default.
        where: origin of the values, for the message.
        way_out: what the reader of the message can do.

    Raises:
        InputError: a value is unknown, has a wrong type, is out of range, or names a class or a file.
    """
    return _Reader(_package(kind), way_out).build(kind, values, where)


def arguments_from(kind: type, values: Any, *, where: str, way_out: str) -> dict[str, Any]:
    """Arguments of a class from plain values, as in `from_plain`."""
    return _Reader(_package(kind), way_out).arguments(kind, values, where)


def subclasses(kind: type[_Made]) -> Iterator[type[_Made]]:
    """A class and all classes below it that are defined."""
    yield kind
    for one in kind.__subclasses__():
        yield from subclasses(one)


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Reader of one file's values.

    Attributes:
        package: package of the class that is built, whose own classes are allowed too.
        way_out: end of every message.
    """

    package: str
    way_out: str

    def build(self, kind: type[_Made], values: Any, where: str, depth: int = 0) -> _Made:
        made = self.arguments(kind, values, where, depth)
        try:
            return kind(**made)
        except InputError as error:
            raise self.wrong(where, error.expected, error.found) from None
        except (TypeError, ValueError, ArithmeticError) as error:
            raise self.wrong(where, "arguments that go together", str(error)) from None

    def arguments(self, kind: type, values: Any, where: str, depth: int = 0) -> dict[str, Any]:
        if not isinstance(values, Mapping) or depth > _DEEPEST:
            raise self.wrong(where, "arguments by name", values)
        hints, defaults = _hints(kind), _defaults(kind)
        files: Mapping[str, tuple[str, ...]] = getattr(kind, "file_arguments", {})
        made = {}
        for name, value in values.items():
            if name not in hints:
                raise self.wrong(where, f"arguments among {', '.join(hints)}", name)
            if name in files and value is not None and value not in files[name]:
                raise self.wrong(where, f"{name}: no file, but {' or '.join(files[name]) or 'null'}", value)
            if isinstance(value, Mapping) and name in defaults and value == plain(defaults[name]):
                continue  # a default of a class that no file may give, as it was written
            made[name] = self.value(hints[name], value, name, where, depth)
        return made

    def value(self, hint: Any, value: Any, name: str, where: str, depth: int) -> Any:
        """Value of an argument, converted to its type."""
        origin, options = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            return self._first(options, value, name, where, depth)
        if origin is Literal or hint in (bool, str) or (isinstance(hint, type) and issubclass(hint, int | float)):
            fits, said = _fits(hint, value)
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            return self._mapping(options, value, name, where, depth)
        elif hint is range or (isinstance(origin, type) and issubclass(origin, Collection)):
            return self._entries(hint, value, name, where, depth)
        elif hint in (Any, object):
            fits, said = _is_plain(value), "a number, a text, or a list or mapping of them"
        elif hint in (None, NoneType):
            fits, said = value is None, "null"
        elif isinstance(hint, type) and not issubclass(hint, os.PathLike):
            return self._object(hint, value, f"{where}.{name}", depth)
        else:
            fits, said = False, f"no value, because a file may not give a {getattr(hint, '__name__', hint)}"
        if not fits:
            raise self.wrong(where, f"{name}: {said}", value)
        return value

    def wrong(self, where: str, expected: str, found: Any) -> InputError:
        shown = found if isinstance(found, str) else repr(found)
        return InputError(expected=f"{expected}, in {where}", found=" ".join(shown.split())[:100], way_out=self.way_out)

    def _first(self, options: Sequence[Any], value: Any, name: str, where: str, depth: int) -> Any:
        """Value as the first of several types that it fits."""
        if value is None and NoneType in options:
            return None
        kinds = [option for option in options if option is not NoneType]
        for option in kinds[:-1]:
            try:
                return self.value(option, value, name, where, depth)
            except InputError:
                continue
        return self.value(kinds[-1], value, name, where, depth)

    def _entries(self, hint: Any, value: Any, name: str, where: str, depth: int) -> Any:
        origin, options = get_origin(hint) or hint, get_args(hint) or (int,)
        fixed = origin is tuple and options[-1] is not ...
        right = isinstance(value, list | tuple) and len(value) <= _MOST_ENTRIES and depth <= _DEEPEST
        if not right or (fixed and len(value) != len(options)):
            raise self.wrong(where, f"{name}: {len(options) if fixed else 'several'} values", value)
        kinds = options if fixed else options[:1] * len(value)
        made = [self.value(kind, one, name, where, depth + 1) for kind, one in zip(kinds, value, strict=True)]
        kept = origin if origin in (set, frozenset) else tuple if issubclass(origin, Sequence) else list
        return kept(made)

    def _mapping(self, options: Sequence[Any], value: Any, name: str, where: str, depth: int) -> Any:
        if not isinstance(value, Mapping) or len(value) > _MOST_ENTRIES or depth > _DEEPEST:
            raise self.wrong(where, f"{name}: values by name", value)
        of_key, of_value = options or (str, Any)
        return {
            self.value(of_key, key, name, where, depth + 1): self.value(of_value, one, name, where, depth + 1)
            for key, one in value.items()
        }

    def _object(self, base: type[Any], value: Any, where: str, depth: int) -> Any:
        """Object of a class, or of the subclass of it that the value names."""
        if _package(base) not in {*_ROOMS, self.package}:
            raise self.wrong(where, f"no value, because a file may not give a {base.__name__}", value)
        if not isinstance(value, Mapping):
            raise self.wrong(where, f"the arguments of a {base.__name__} by name", value)
        if _CLASS_PATH not in value:
            if inspect.isabstract(base):
                raise self.wrong(where, f"{_CLASS_PATH} of a {base.__name__}", dict(value))
            return self.build(base, value, where, depth + 1)
        known = {class_path(kind): kind for kind in _accepted(base)}
        path, others = value[_CLASS_PATH], set(value) - {_CLASS_PATH, _ARGUMENTS}
        if isinstance(path, str) and path not in known:
            path = current_path(path)
        kind = (known.get(path) or _exported(path)) if isinstance(path, str) else None
        if kind is None or kind not in known.values() or others:
            names = ", ".join(sorted(kind.__name__ for kind in known.values()))
            raise self.wrong(where, f"only {_CLASS_PATH}, one of {names}, and {_ARGUMENTS}", others or path)
        return self.build(kind, value.get(_ARGUMENTS) or {}, where, depth + 1)


def _package(kind: type) -> str:
    """Package of a class: a room of this project, or the top-level package of others."""
    top, *below = kind.__module__.split(".")
    return f"{top}.{below[0]}" if top == "fedleak" and below else top


def _exported(path: str) -> Any:
    """What a module that is imported already holds under a name, such as a class that a package exports; or None."""
    module, _, name = path.rpartition(".")
    return vars(sys.modules[module]).get(name) if module in sys.modules else None


def _accepted(base: type[Any]) -> Iterator[type[Any]]:
    """Concrete classes of a type: all of this project's, and those that the user's imports have defined."""
    if _package(base) in _ROOMS:
        above = base.__module__.rpartition(".")[0]
        package = room(_ADDED_IN[above]) if above in _ADDED_IN else importlib.import_module(above)
        classes_in(package, base)  # imports what defines them
    for kind in subclasses(base):
        if not inspect.isabstract(kind):
            yield kind


def _hints(kind: type) -> dict[str, Any]:
    """Type of each argument of a constructor; Any where there is none, or none that can be resolved."""
    found: dict[str, Any] = {}
    for one in reversed(inspect.getmro(kind)[:-1]):
        if "__init__" in vars(one):
            try:
                found |= get_type_hints(vars(one)["__init__"])
            except (NameError, TypeError, AttributeError):
                continue
    if dataclasses.is_dataclass(kind):
        fields = [field.name for field in dataclasses.fields(kind) if field.init]
        return {name: hint for name, hint in get_type_hints(kind).items() if name in fields}
    return {name: found.get(name, Any) for name in argument_names(kind)}


def _defaults(kind: type) -> dict[str, Any]:
    parameters = [p for one in inspect.getmro(kind)[:-1] for p in inspect.signature(one).parameters.values()]
    return {p.name: p.default for p in reversed(parameters) if p.default is not p.empty}


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether a value of any type consists of numbers and texts alone."""
    if isinstance(value, list | tuple | Mapping):
        parts = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
        fits = depth < _DEEPEST and len(value) <= _MOST_ENTRIES and _CLASS_PATH not in value
        return fits and all(_is_plain(part, depth + 1) for part in parts)
    return value is None or any(_fits(kind, value)[0] for kind in (bool, str, int, float))


def _fits(hint: Any, value: Any) -> tuple[bool, str]:
    """Whether a plain value has a type, and a description of the type."""
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return any(
            type(value) is type(one) and value == one for one in choices
        ), f"one of {', '.join(map(str, choices))}"
    if hint is str:
        return type(value) is str and len(value) < _MOST_ENTRIES, "a text"
    if hint is bool:
        return type(value) is bool, "true or false"
    if issubclass(hint, int):
        largest = _LARGEST_SEED if hint is int else _LARGEST_WHOLE
        fits, said = type(value) is int and abs(value) <= largest, f"a whole number up to {largest}"
    else:
        fits = type(value) in (int, float) and math.isfinite(value) and abs(value) <= _LARGEST_NUMBER
        said = f"a number up to {_LARGEST_NUMBER:g}"
    try:
        return fits and (not hasattr(hint, "_expression") or hint(value) is not None), said
    except (TypeError, ValueError):
        return False, str(hint._expression).replace("v", "a number")
