"""Overrides of a ``fedleak train`` configuration by dotted keys, and their form as command-line options."""

import copy
import inspect
import json
import pydoc
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from lightning import LightningModule

from fedleak.core.errors import InputError, require
from fedleak.core.parameters import argument_names
from fedleak.training.data import FederatedDataModule
from fedleak_recorder.nearest import did_you_mean

Config = dict[str, Any]
T = TypeVar("T")
PARTS = ("data", "model", "trainer")
"""Top-level keys of a configuration."""
_BASES: dict[str, type] = {"data": FederatedDataModule, "model": LightningModule}
_ITSELF = ("class_path", "init_args")
_MOST_CLASSES = 32
"""Entries of the longest list of classes; jsonargparse takes a time that grows with the square of their number."""
_MOST_VALUES = 500
"""Values of the longest list, with those of the lists in it, for the same reason: 500 take 0.3 seconds, 1000 take 1."""


def overridden(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> Config:
    """Configuration with overrides applied.

    Mappings are merged, other values replaced. Another class of the data or the model keeps the previous arguments that
    its constructor takes.

    Args:
        config: configuration as in configs/train.
        overrides: values by dotted key such as ``model.local.epochs``; as on the command line, ``init_args`` is left
            out, and a key that ends in ``+`` appends to a list.

    Raises:
        InputError: a key begins with none of `PARTS`.
    """
    made = copy.deepcopy(dict(config))
    for key, value in overrides.items():
        head, *path = key.split(".")
        way_out = "Write keys as on the command line of fedleak train, without the dashes."
        require(head in PARTS, f"keys of fedleak train that begin with {', '.join(PARTS)}", repr(key), way_out)
        if not path and isinstance(value, str):
            value = {"class_path": value}
        for name in reversed(path):
            value = {name: value}
        require(isinstance(value, Mapping), f"a mapping as {head}", repr(value), "Write `key: value` lines below it.")
        made[head] = _merged(made.get(head, {}), value, _BASES.get(head))
    return made


def check_lengths_of_lists(value: Any, where: str) -> None:
    """Checks that no list, of classes as in ``model.defenses`` or of values, is longer than can be parsed in seconds.

    Args:
        value: part of a configuration.
        where: dotted key of it, for messages.

    Raises:
        InputError: one is.
    """
    entries: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        entries = ((f"{where}.{key}" if where else str(key), own) for key, own in value.items())
    elif isinstance(value, list):
        entries = ((where, own) for own in value)
    # Inner lists first, so that the message names the one that is long.
    for key, own in entries:
        check_lengths_of_lists(own, key)
    if isinstance(value, list):
        classes = sum(isinstance(entry, Mapping) and "class_path" in entry for entry in value)
        way_out = "Leave repetitions out."
        found = f"a list of {classes}"
        require(classes <= _MOST_CLASSES, f"at most {_MOST_CLASSES} classes as {where}", found, way_out)
        values = _values_in(value)
        found = f"a list of {values}"
        require(values <= _MOST_VALUES, f"at most {_MOST_VALUES} values as {where}", found, way_out)


def _values_in(value: Any) -> int:
    """Number of values that are no list and no mapping, in a part of a configuration."""
    if isinstance(value, Mapping):
        return sum(map(_values_in, value.values()))
    if isinstance(value, list):
        return sum(map(_values_in, value))
    return 1


def _merged(old: Any, new: Any, base: type | None = None) -> Any:
    if not isinstance(new, Mapping):
        return copy.deepcopy(new)
    if not isinstance(old, Mapping):
        # A class given by its path alone gets arguments.
        old = {"class_path": old} if isinstance(old, str) and "class_path" not in new else {}
    if "class_path" in new and new["class_path"] != old.get("class_path"):
        # Another class of data or models keeps the arguments that it takes.
        names = set() if base is None else {*argument_names(class_named(new["class_path"], base))}
        kept = {name: value for name, value in old.get("init_args", {}).items() if name in names}
        old = {"class_path": new["class_path"], "init_args": kept}
    if "class_path" in old:
        own = {key: value for key, value in new.items() if key not in _ITSELF}
        new = {"init_args": {**new.get("init_args", {}), **own}}
    merged = dict(old)
    for key, value in new.items():
        if str(key).endswith("+"):
            merged[key[:-1]] = [*(merged.get(key[:-1]) or []), *copy.deepcopy(value)]
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def class_named(name: str, base: type[T]) -> type[T]:
    """Class by its path, or by its name if it has been imported.

    Raises:
        InputError: there is no such subclass of `base`.
    """
    found = pydoc.locate(name) if "." in name else None
    found = found or next((kind for kind in below(base) if kind.__name__ == name), None)
    if not (isinstance(found, type) and issubclass(found, base)):
        way_out = "Check the spelling, and that the package can be imported from here (PYTHONPATH)."
        raise InputError(
            expected=f"the name or path of a subclass of {base.__name__}",
            found=repr(name),
            way_out=did_you_mean(name, [kind.__name__ for kind in below(base)], way_out),
        )
    return found


def below(base: type[T]) -> Iterator[type[T]]:
    """All imported subclasses."""
    for kind in base.__subclasses__():
        yield kind
        yield from below(kind)


def options_of(config: Mapping[str, Any], base: Mapping[str, Any]) -> list[str]:
    """Options of ``fedleak train fit --config BASE`` that give a configuration, quoted for a shell."""
    return [shlex.quote(option) for part in PARTS for option in _options(f"--{part}", config.get(part), base.get(part))]


def option_words(key: str, values: Mapping[str, Any]) -> list[str]:
    """Options such as ``--attack.max_iter=60``, quoted for a shell."""
    return [shlex.quote(option) for option in _each(key, values, {})]


def _options(key: str, value: Any, old: Any) -> Iterator[str]:
    if value == old:
        return
    if isinstance(value, Mapping) and "class_path" in value:
        if not isinstance(old, Mapping) or value["class_path"] != old.get("class_path"):
            yield f"{key}={value['class_path']}"
        # The parser, like `overridden`, keeps another class's arguments that the new one takes.
        known = old.get("init_args", {}) if isinstance(old, Mapping) else {}
        yield from _each(key, value.get("init_args", {}), known)
    elif isinstance(value, Mapping) and None in value.values():
        yield f"{key}={_written(value)}"  # the parser rejects null as the value of a single number
    elif isinstance(value, Mapping) and value:
        yield from _each(key, value, old if isinstance(old, Mapping) else {})
    else:
        yield f"{key}={_written(value)}"


def _each(key: str, values: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield from _options(f"{key}.{name}", value, old.get(name))


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def kind_of(data: type) -> type:
    """Kind of a data set: the nearest abstract base class."""
    return next(one for one in inspect.getmro(data)[1:] if inspect.isabstract(one))
