"""A module's arguments as plain values, from which Lightning builds it again without running code of the file."""

import dataclasses
import inspect
import sys
from collections.abc import Mapping
from typing import Any

from protocol.errors import InputError

KEY = "hyper_parameters"
"""Where Lightning keeps them in a checkpoint."""
_PLAIN = (bool, int, float, str)


def described(kind: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with which a class is built, in the form of a configuration.

    Args:
        kind: the class.
        arguments: by name; those that its constructor does not take are left out.
    """
    names = inspect.signature(kind).parameters
    given = {name: _plain(value) for name, value in arguments.items() if name in names}
    return {**given, "_class_path": _path(kind), "_instantiator": "lightning.pytorch.cli.instantiate_module"}


def check_classes(value: Any) -> None:
    """Refuses a description that names a class which nobody has imported: building it would run that module's code.

    Args:
        value: what a checkpoint holds under `KEY`.

    Raises:
        InputError: names the class.
    """
    if isinstance(value, list | tuple):
        for entry in value:
            check_classes(entry)
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            if name in ("class_path", "_class_path"):
                _check_imported(entry)
            check_classes(entry)


def _check_imported(path: Any) -> None:
    module, _, name = str(path).rpartition(".")
    if not isinstance(getattr(sys.modules.get(module), name, None), type):
        raise InputError(
            expected="a checkpoint whose classes are imported",
            found=str(path),
            way_out=f"If you trust the file, `import {module}` first." if module else "Write the checkpoint again.",
        )


def _plain(value: Any) -> Any:
    for plain in _PLAIN:
        if isinstance(value, plain):
            # A range's own type, e.g. `ranges.PositiveInt`, is none that a checkpoint may hold.
            return plain(value)
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(entry) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted(_plain(entry) for entry in value)
    # One of several classes below an abstract one is named; of any other dataclass the options say enough.
    if dataclasses.is_dataclass(value) and not any(inspect.isabstract(base) for base in inspect.getmro(type(value))):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
    held = {name: getattr(value, name) for name in inspect.signature(type(value)).parameters if hasattr(value, name)}
    return {"class_path": _path(type(value)), "init_args": _plain(held)}


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
