"""Overrides of a ``fedleak train`` configuration by dotted keys, and their form as command-line options."""

import copy
import inspect
import json
import pydoc
import shlex
from collections.abc import Iterator, Mapping
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
    merged_config = copy.deepcopy(dict(config))
    for key, value in overrides.items():
        head, *path = key.split(".")
        way_out = "Write keys as on the command line of fedleak train, without the dashes."
        require(head in PARTS, f"keys of fedleak train that begin with {', '.join(PARTS)}", repr(key), way_out)
        if not path and isinstance(value, str):
            value = {"class_path": value}
        for name in reversed(path):
            value = {name: value}
        require(isinstance(value, Mapping), f"a mapping as {head}", repr(value), "Write `key: value` lines below it.")
        merged_config[head] = _merged(merged_config.get(head, {}), value, _BASES.get(head))
    return merged_config


def check_lengths_of_lists(value: Any, where: str) -> None:
    """Checks that no list, of classes as in ``model.defenses`` or of values, is longer than can be parsed in seconds.

    Args:
        value: part of a configuration.
        where: dotted key of it, for messages.

    Raises:
        InputError: one is.
    """
    if isinstance(value, Mapping):
        for key, value_below in value.items():
            check_lengths_of_lists(value_below, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        # Inner lists first, so that the message names the one that is long.
        for entry in value:
            check_lengths_of_lists(entry, where)
        classes = sum(isinstance(entry, Mapping) and "class_path" in entry for entry in value)
        values = _values_in(value)
        for count, most, noun in ((classes, _MOST_CLASSES, "classes"), (values, _MOST_VALUES, "values")):
            require(
                count <= most,
                f"at most {most} {noun} as {where}",
                f"a list of {count}",
                "Leave repetitions out.",
            )


def _values_in(value: Any) -> int:
    """Number of values that are no list and no mapping, in a part of a configuration."""
    if isinstance(value, Mapping):
        return sum(map(_values_in, value.values()))
    if isinstance(value, list):
        return sum(map(_values_in, value))
    return 1


def _merged(old: Any, new: Any, base: type | None = None) -> Any:
    """A part of a configuration with another one over it; `base` is the class of data or models, None elsewhere."""
    if not isinstance(new, Mapping):
        return copy.deepcopy(new)
    # 1. A class given by its path alone gets arguments; any other single value is replaced.
    if not isinstance(old, Mapping):
        is_class_path = isinstance(old, str) and "class_path" not in new
        old = {"class_path": old} if is_class_path else {}
    # 2. Another class of data or models keeps the arguments that it takes; of others, it keeps none.
    if "class_path" in new and new["class_path"] != old.get("class_path"):
        arguments = {}
        if base is not None:
            names = {*argument_names(class_named(new["class_path"], base))}
            arguments = {name: value for name, value in old.get("init_args", {}).items() if name in names}
        old = {"class_path": new["class_path"], "init_args": arguments}
    # 3. Beside the path of a class, a key may leave out `init_args`.
    if "class_path" in old:
        beside_class_path = {key: value for key, value in new.items() if key not in _ITSELF}
        new = {"init_args": {**new.get("init_args", {}), **beside_class_path}}
    # 4. Key by key; one that ends in + appends.
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
    located: object = None
    if "." in name:
        located = pydoc.locate(name)
    if located is None:
        located = next((kind for kind in below(base) if kind.__name__ == name), None)
    if not (isinstance(located, type) and issubclass(located, base)):
        way_out = "Check the spelling, and that the package can be imported from here (PYTHONPATH)."
        raise InputError(
            expected=f"the name or path of a subclass of {base.__name__}",
            found=repr(name),
            way_out=did_you_mean(name, [kind.__name__ for kind in below(base)], way_out),
        )
    return located


def below(base: type[T]) -> Iterator[type[T]]:
    """All imported subclasses."""
    for kind in base.__subclasses__():
        yield kind
        yield from below(kind)


def options_of(config: Mapping[str, Any], base: Mapping[str, Any]) -> list[str]:
    """Options of ``fedleak train fit --config BASE`` that give a configuration, quoted for a shell."""
    options: list[str] = []
    for part in PARTS:
        options += _options(f"--{part}", config.get(part), base.get(part))
    return [shlex.quote(option) for option in options]


def option_words(key: str, values: Mapping[str, Any]) -> list[str]:
    """Options such as ``--attack.max_iter=60``, quoted for a shell."""
    return [shlex.quote(option) for option in _each(key, values, {})]


def _options(key: str, value: Any, old: Any) -> Iterator[str]:
    """Options that make a value of an old one: the class and its arguments, or values by name, or the value."""
    if value == old:
        return
    old_mapping: Mapping[str, Any] = old if isinstance(old, Mapping) else {}
    if isinstance(value, Mapping) and "class_path" in value:
        if value["class_path"] != old_mapping.get("class_path"):
            yield f"{key}={value['class_path']}"
        # The parser, like `overridden`, keeps another class's arguments that the new one takes.
        yield from _each(key, value.get("init_args", {}), old_mapping.get("init_args", {}))
    elif isinstance(value, Mapping) and None in value.values():
        yield f"{key}={_written(value)}"  # the parser rejects null as the value of a single number
    elif isinstance(value, Mapping) and value:
        yield from _each(key, value, old_mapping)
    else:
        yield f"{key}={_written(value)}"


def _each(key: str, values: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield from _options(f"{key}.{name}", value, old.get(name))


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def kind_of(data: type) -> type:
    """Kind of a data set: the nearest abstract base class."""
    return next(base for base in inspect.getmro(data)[1:] if inspect.isabstract(base))
