"""A module's arguments as plain values, from which Lightning rebuilds it without running code from a checkpoint."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedleak.core.parameters import argument_names, class_path

KEY = "hyper_parameters"
"""Lightning's key of the arguments in a checkpoint."""
_PLAIN = (bool, int, float, str)


def described(kind: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a class in the form of a configuration.

    Args:
        kind: the class.
        arguments: arguments by name; those that its constructor does not take are ignored.
    """
    names = set(argument_names(kind))
    plain_arguments = {name: plain(value) for name, value in arguments.items() if name in names}
    return {
        **plain_arguments,
        "_class_path": class_path(kind),
        "_instantiator": "lightning.pytorch.cli.instantiate_module",
    }


def plain(value: Any) -> Any:
    """Value as numbers, texts, lists and mappings; an object as its class path and arguments, or its fields."""
    for kind in _PLAIN:
        if isinstance(value, kind):
            # Types of ranges, e.g. `fedleak.core.ranges.PositiveInt`, are not allowed in a checkpoint.
            return kind(value)
    if value is None:
        return None
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(entry) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(entry) for entry in value)
    return _plain_object(value)


def _plain_object(value: Any) -> dict[str, Any]:
    # Subclasses of an abstract class are described by class path and arguments, other dataclasses by their fields.
    has_abstract_base = any(inspect.isabstract(base) for base in inspect.getmro(type(value)))
    if dataclasses.is_dataclass(value) and not has_abstract_base:
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: plain(getattr(value, name)) for name in names}
    arguments = {}
    for name in inspect.signature(type(value)).parameters:
        if hasattr(value, name):
            arguments[name] = getattr(value, name)
    return {"class_path": class_path(type(value)), "init_args": plain(arguments)}
