"""Check of a training's configuration before a library reads it: names, classes, and values of their arguments.

The configuration comes from files, options of the command line, or a cell of a table. Every name and value is compared
with what the constructors of the named classes take, so that a message can say which key is wrong and what fits.
"""

import json
import pydoc
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lightning import LightningModule, Trainer

from fedleak.core.errors import InputError
from fedleak.tables.argument_types import (
    choices_of,
    described,
    entry_hints,
    fits,
    has_fixed_length,
    is_any,
    is_class,
    is_fields,
    is_mapping,
    is_out_of_range,
    is_required,
    is_scalar,
    is_sequence,
    loaded,
    members,
    passed_parameters,
    range_of,
)
from fedleak.tables.command_words import EXAMPLE, Given
from fedleak.tables.overrides import below
from fedleak.training.data import FederatedDataModule
from fedleak_recorder.nearest import did_you_mean, nearest

_BASES: dict[str, type] = {"model": LightningModule, "data": FederatedDataModule}
_CLASS_PATH = "class_path"
_ARGUMENTS = "init_args"
_MORE = "dict_kwargs"
_OF_A_CLASS = (_CLASS_PATH, _ARGUMENTS, _MORE)
"""Keys of the description of a class; others beside them are arguments."""
_LINKED = {"trainer.logger": "save_dir", "model": "seed"}
"""Argument of a class, by the key of the class, that is set to that of another key: a logger writes into the run's
folder, and a model has the seed of the data."""
_HELP = "`fedleak train fit --help` lists the options."
_NOTHING = object()
"""In place of a default where there is none to show."""


@dataclass
class _NamedClass:
    """Class that a configuration names, with the names of the arguments that it gives."""

    kind: type
    key: str
    origin: str
    arguments: set[str] = field(default_factory=set)


class ConfigurationCheck:
    """Check of a configuration, part by part in the order in which they override each other.

    Args:
        options: names of the options that are no part of data, model or trainer, such as ``ckpt_path``.
        trainer_defaults: options of the Trainer that have another default than in Lightning.
    """

    def __init__(self, options: Collection[str], trainer_defaults: Mapping[str, Any]) -> None:
        self._options = options
        self._trainer_defaults = SimpleNamespace(**trainer_defaults)
        self._classes: dict[str, _NamedClass] = {}
        # Keys of classes that only the library can read, such as a function that makes one.
        self._unread: set[str] = set()
        self._lengths: dict[str, int] = {}
        self._origin = ""

    def add(self, part: Given) -> None:
        """Checks a part of the configuration.

        Raises:
            InputError: a key, a class or a value is none that ``fedleak train`` takes.
        """
        self._origin = part.origin
        for name, value in _by_first_part(part.content):
            if name == "trainer":
                self._fields(Trainer, value, name, self._trainer_defaults)
            elif name in _BASES:
                self._class(_BASES[name], value, name)
            elif name.partition("+")[0] not in self._options:
                self._refuse_key(name, value)

    def finish(self) -> None:
        """Checks that nothing is missing.

        Raises:
            InputError: there is no model or no data, or a class lacks an argument.
        """
        missing = [name for name in _BASES if name not in self._classes and name not in self._unread]
        if missing:
            raise InputError(
                expected="a model and data",
                found=f"no {' and no '.join(missing)}",
                way_out=f"Give a configuration, e.g. --config {EXAMPLE}.",
            )
        for named in self._classes.values():
            parameters = passed_parameters(named.kind)
            present = {*named.arguments, _LINKED.get(named.key)}
            lacking = [name for name in parameters if is_required(parameters[name]) and name not in present]
            if lacking:
                keys = [f"{named.key}.{name}" for name in lacking]
                raise InputError(
                    expected=f"{' and '.join(lacking)}, which {named.kind.__name__} needs{named.origin}",
                    found="none",
                    way_out=f"Give {' and '.join(keys)}.",
                )

    def _refuse_key(self, name: str, value: Any) -> None:
        """Raises the error for a key at the top that there is not."""
        wrong = name
        near = nearest(name, [*_BASES, "trainer", *self._options])
        # The path below the wrong key makes the suggestion one that can be copied.
        while isinstance(value, Mapping) and len(value) == 1:
            (key_below,) = value
            wrong = f"{wrong}.{key_below}"
            near = [f"{near_key}.{key_below}" for near_key in near]
            value = value[key_below]
        way_out = f"Did you mean {' or '.join(near)}?" if near else _HELP
        raise InputError(expected=f"keys that fedleak train takes{self._origin}", found=wrong, way_out=way_out)

    def _fields(self, kind: type, values: Any, key: str, default: Any = _NOTHING) -> None:
        """Checks the arguments of the Trainer or the fields of a dataclass, whose defaults an object may hold."""
        values = loaded(values)
        if not isinstance(values, Mapping):
            way_out = f"Write one value per line below `{key}:`, or --{key}.NAME VALUE."
            raise self._wrong(f"{key} as values by name", values, way_out)
        self._arguments(kind, values, key, default)

    def _arguments(self, kind: type, values: Mapping[str, Any], key: str, default: Any = _NOTHING) -> None:
        """Checks arguments by name."""
        parameters = passed_parameters(kind)
        for written_name, value in _by_first_part(values):
            # A name that ends in + appends to a list.
            name = written_name.removesuffix("+")
            argument_key = f"{key}.{name}"
            if name not in parameters:
                raise self._unknown_argument(kind, name, key)
            parameter = parameters[name]
            if written_name.endswith("+"):
                self._appended(parameter.annotation, value, argument_key)
            else:
                value_by_default = getattr(default, name, parameter.default)
                self._value(parameter.annotation, value, argument_key, value_by_default)

    def _unknown_argument(self, kind: type, name: str, key: str) -> InputError:
        """Error for an argument that a class does not take, with near names also among fields of its arguments."""
        near = [f"{key}.{near_name}" for near_name in nearest(name, _dotted_names(kind))]
        if near:
            way_out = f"Did you mean {' or '.join(near)}?"
        elif kind is Trainer:
            way_out = _HELP
        else:
            way_out = f"Known: {', '.join(passed_parameters(kind)) or 'none'}."
        return self._wrong(f"arguments that {kind.__name__} takes", f"{key}.{name}", way_out)

    def _class(self, base: type, value: Any, key: str) -> None:
        """Checks a class by its name, or by its path and arguments, or arguments of the class that is named already."""
        description = loaded(value)
        if description is None:
            return
        if isinstance(description, str):
            if Path(description).is_file():
                # A file with this part of the configuration, which the library reads.
                self._unread.add(key)
                return
            description = {_CLASS_PATH: description}
        if not isinstance(description, Mapping):
            raise self._wrong(f"{key} as the name or path of a {base.__name__}", value, _class_form(key))
        if _CLASS_PATH in description:
            self._name(base, description[_CLASS_PATH], key)
        arguments = self._arguments_in(description, key)
        named = self._classes.get(key)
        if named is None:
            if arguments and key in _BASES and key not in self._unread:
                raise self._wrong(f"the class of {key} before its arguments", next(iter(arguments)), _class_form(key))
            return
        named.arguments |= {name.removesuffix("+") for name, _ in _by_first_part(arguments)}
        if _MORE in description:
            # Arguments that the constructor passes on, which its signature does not show.
            named.arguments |= {*passed_parameters(named.kind)}
        self._arguments(named.kind, arguments, key)

    def _arguments_in(self, description: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Arguments in the description of a class, where `init_args` may be left out."""
        arguments = description.get(_ARGUMENTS)
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, Mapping):
            raise self._wrong(f"{key}.{_ARGUMENTS} as values by name", arguments, _class_form(key))
        beside_class_path = {name: value for name, value in description.items() if name not in _OF_A_CLASS}
        return {**arguments, **beside_class_path}

    def _name(self, base: type, path: Any, key: str) -> None:
        """Keeps the class of a key, with the arguments of an earlier one that it takes too."""
        kind = self._class_at(base, path, key)
        previous = self._classes.pop(key, None)
        self._unread.discard(key)
        if kind is None:
            self._forget(f"{key}.")
            self._unread.add(key)
            return
        named = _NamedClass(kind, key, self._origin)
        if previous is not None:
            named.arguments = previous.arguments & {*passed_parameters(kind)}
        if previous is None or previous.kind is not kind:
            self._forget(f"{key}.")
        self._classes[key] = named

    def _class_at(self, base: type, path: Any, key: str) -> type | None:
        """Class of a name or path; None for what only the library can tell, such as a function that makes one."""
        kinds = {kind.__name__: kind for kind in _concrete(base)}
        if isinstance(path, str) and path in kinds:
            return kinds[path]
        expected = f"{key} as the name or path of a {base.__name__}"
        names = sorted(kinds)
        if not isinstance(path, str) or "." not in path:
            raise self._wrong(expected, path, did_you_mean(str(path), names, f"Known: {', '.join(names)}."))
        try:
            located = pydoc.locate(path)
        except pydoc.ErrorDuringImport:
            return None
        if located is None:
            way_out = "Check the spelling, and that the package is installed, in this folder or in PYTHONPATH."
            near = nearest(path.rpartition(".")[2], names)
            if near:
                way_out = f"Did you mean {' or '.join(near)}? Otherwise check that it can be imported (PYTHONPATH)."
            raise self._wrong(expected, path, way_out)
        if not isinstance(located, type):
            return None
        if not issubclass(located, base):
            raise self._wrong(expected, path, f"It is no {base.__name__}. Known: {', '.join(names)}.")
        return located

    def _forget(self, prefix: str) -> None:
        """Drops the classes below a key that has got another value."""
        for key in [key for key in self._classes if key.startswith(prefix)]:
            del self._classes[key]
        for key in [key for key in self._lengths if f"{key}[".startswith(prefix)]:
            del self._lengths[key]

    def _appended(self, hint: Any, value: Any, key: str) -> None:
        """Checks values that are appended to a list."""
        sequence = next((member for member in members(hint) if is_sequence(member)), Any)
        value = loaded(value)
        entries = value if isinstance(value, list) else [value]
        self._entries(sequence, entries, key)

    def _entries(self, hint: Any, entries: Sequence[Any], key: str) -> None:
        """Checks entries of a list, which follow those that it has already."""
        for entry_hint, entry in zip(entry_hints(hint, len(entries)), entries, strict=True):
            number = self._lengths.get(key, 0)
            self._value(entry_hint, entry, f"{key}[{number}]")
            self._lengths[key] = number + 1

    def _value(self, hint: Any, value: Any, key: str, default: Any = _NOTHING) -> None:
        """Checks the value of an argument against its type."""
        hints = members(hint)
        content = list(value) if isinstance(value, tuple) else loaded(value)
        if content is None or any(is_any(member) for member in hints):
            return
        if isinstance(content, Mapping):
            self._mapping(hints, content, key, default)
        elif isinstance(content, list):
            self._list(hints, content, key, default)
        elif not any(is_scalar(member) and fits(member, value) for member in hints):
            self._single(hints, value, key, default)

    def _mapping(self, hints: Sequence[Any], values: Mapping[str, Any], key: str, default: Any) -> None:
        """Checks values by name: arguments of a class, fields, or those of the class that a list has got last."""
        if any(is_mapping(member) for member in hints):
            return
        classes = [member for member in hints if is_class(member)]
        list_entries = _entries_of_lists(hints)
        is_of_list = len(list_entries) == 1 and is_class(list_entries[0]) and key in self._lengths
        if len(classes) == 1 and not is_of_list:
            if is_fields(classes[0]) and _CLASS_PATH not in values and key not in self._classes:
                self._fields(classes[0], values, key, default)
            else:
                self._class(classes[0], values, key)
        elif is_of_list:
            # Arguments of the class that the list has got last.
            self._class(list_entries[0], values, f"{key}[{self._lengths.get(key, 0) - 1}]")
        elif not classes and not list_entries:
            raise self._misfit(hints, dict(values), key, default)

    def _list(self, hints: Sequence[Any], values: list[Any], key: str, default: Any) -> None:
        """Checks a list, which replaces an earlier one; of several types of lists, only the library can tell."""
        sequences = [member for member in hints if is_sequence(member)]
        if not sequences:
            raise self._misfit(hints, values, key, default)
        if len(sequences) > 1:
            return
        (sequence,) = sequences
        if has_fixed_length(sequence) and len(entry_hints(sequence, 0)) != len(values):
            raise self._misfit(hints, values, key, default)
        self._forget(f"{key}[")
        self._entries(sequence, values, key)

    def _single(self, hints: Sequence[Any], value: Any, key: str, default: Any) -> None:
        """Checks a single value that is no number or text which the argument takes: the name of a class, or wrong."""
        classes = [member for member in hints if is_class(member)]
        if len(classes) == 1 and is_fields(classes[0]) and not classes[0].__subclasses__():
            self._fields(classes[0], value, key, default)
            return
        if isinstance(value, str) and len(classes) == 1:
            self._forget(f"{key}[")
            self._class(classes[0], value, key)
            return
        entries = _entries_of_lists(hints)
        if isinstance(value, str) and len(entries) == 1 and is_class(entries[0]):
            # A misspelt class is said first, then that it belongs into a list.
            self._class_at(entries[0], value, key)
            raise self._wrong(f"{key} as a list", value, f"Write [{value}], or --{key}+={value} to append it.")
        raise self._misfit(hints, value, key, default)

    def _misfit(self, hints: Sequence[Any], value: Any, key: str, default: Any) -> InputError:
        """Error for a value of a wrong type or out of its range."""
        if str in hints and not isinstance(value, Mapping | list):
            way_out = f"Write it in quotes, '{_shown(value)}', if that is what you mean."
            return self._wrong(f"{key} as a text", value, way_out)
        # What fits: the types in words, where a number includes a whole one, then all choices together.
        choices: dict[str, None] = {}
        fitting = []
        for hint in hints:
            choices |= dict.fromkeys(choices_of(hint))
            is_in_float = hint is int and float in hints
            if not choices_of(hint) and not is_in_float:
                fitting.append(described(hint))
        if choices:
            fitting.append(f"one of {', '.join(choices)}")
        words = f"as {' or '.join(fitting)}"
        if len(hints) == 1 and is_out_of_range(hints[0], value):
            words = range_of(hints[0])
        way_out = "Correct it."
        if default is None or isinstance(default, bool | int | float | str | tuple | list):
            way_out = f"The default is {_shown(default)}."
        return self._wrong(f"{key} {words}", value, did_you_mean(str(value), list(choices), way_out))

    def _wrong(self, expected: str, found: Any, way_out: str) -> InputError:
        return InputError(expected=f"{expected}{self._origin}", found=_shown(found), way_out=way_out)


def _concrete(base: type) -> list[type]:
    """A class and those below it that a configuration may name."""
    concrete = []
    for kind in (base, *below(base)):
        is_private = kind.__name__.startswith("_")
        is_abstract = bool(getattr(kind, "__abstractmethods__", ()))
        if not is_private and not is_abstract:
            concrete.append(kind)
    return concrete


def _entries_of_lists(hints: Sequence[Any]) -> list[Any]:
    """Types of the entries of those types that are lists."""
    entries: list[Any] = []
    for hint in hints:
        if is_sequence(hint):
            entries += entry_hints(hint, 1)
    return entries


def _by_first_part(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys and values, where a dotted key such as ``local.epochs`` is a mapping below its first part."""
    for key, value in values.items():
        first, dot, rest = str(key).partition(".")
        yield first, {rest: value} if dot else value


def _dotted_names(kind: type) -> list[str]:
    """Names of a class's arguments, and of the fields of those that are dataclasses."""
    names = list(passed_parameters(kind))
    for name, parameter in passed_parameters(kind).items():
        for member in members(parameter.annotation):
            if is_fields(member):
                names += [f"{name}.{field_name}" for field_name in passed_parameters(member)]
    return names


def _class_form(key: str) -> str:
    return f"Write `class_path: NAME` and `init_args:` below `{key}:`, or --{key} NAME."


def _shown(value: Any) -> str:
    """A value as a person would write it."""
    if isinstance(value, tuple):
        value = list(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value) or "an empty text"
