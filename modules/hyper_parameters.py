"""A module's arguments as plain values, from which Lightning rebuilds it without running code from a checkpoint."""

import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from protocol.errors import InputError

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
    given = {name: _plain(value) for name, value in arguments.items() if name in names}
    return {**given, "_class_path": _path(kind), "_instantiator": "lightning.pytorch.cli.instantiate_module"}


def argument_names(kind: type) -> Iterator[str]:
    """Names of the arguments of a class's constructor, including those passed on to its bases."""
    for one in inspect.getmro(kind)[:-1]:
        if "__init__" not in vars(one):
            continue
        parameters = inspect.signature(one).parameters.values()
        yield from (p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return


def check_classes(value: Any) -> None:
    """Checks that all classes in a description are imported, because importing one would run its module's code.

    Args:
        value: value of `KEY` in a checkpoint, or arguments in a manifest.

    Raises:
        InputError: a class is not imported.
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
            expected="a file that names only imported classes",
            found=str(path),
            way_out=f"If you trust the file, `import {module}` first." if module else "Write the checkpoint again.",
        )


def _plain(value: Any) -> Any:
    for plain in _PLAIN:
        if isinstance(value, plain):
            # Types of ranges, e.g. `protocol.ranges.PositiveInt`, are not allowed in a checkpoint.
            return plain(value)
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(entry) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted(_plain(entry) for entry in value)
    # Subclasses of an abstract class are described by class path and arguments, other dataclasses by their fields.
    if dataclasses.is_dataclass(value) and not any(inspect.isabstract(base) for base in inspect.getmro(type(value))):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
    held = {name: getattr(value, name) for name in inspect.signature(type(value)).parameters if hasattr(value, name)}
    return {"class_path": _path(type(value)), "init_args": _plain(held)}


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
