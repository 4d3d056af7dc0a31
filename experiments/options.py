"""What configurations of experiments hold: names out of a list, and numbers that may be infinite."""

import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from protocol.errors import InputError


def check_names(kind: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Refuses a name that is not known.

    Raises:
        InputError: one of `given` is not in `known`.
    """
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(
            expected=f"{kind}s among {', '.join(known)}", found=unknown[0], way_out=f"Fix the name of the {kind}."
        )


def as_number(name: str, value: Any) -> float:
    """A number from a configuration; a budget written as ``inf`` in YAML is text.

    Raises:
        InputError: it is none.
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(expected=f"a number as {name}", found=repr(value), way_out="Fix the cell.") from None


def plain_number(value: float) -> float | int | str:
    """As results.json has it: whole numbers whole, infinity as ``inf``."""
    if value == float("inf"):
        return "inf"
    return int(value) if float(value).is_integer() else value


def in_words(error: Exception) -> str:
    """What Python says of arguments, without the constructor that it names."""
    return re.sub(r"^[\w.]+\.(__init__\(\)|__new__\(\)) ", "", str(error))


def required_arguments(kind: type[Any]) -> list[str]:
    """Names of the arguments without which a class cannot be built."""
    parameters = inspect.signature(kind).parameters.values()
    return [one.name for one in parameters if one.default is one.empty]


def check_types(made: Any, where: str = "") -> None:
    """Refuses a dataclass read from YAML whose values are not of the annotated types, nested ones too.

    Args:
        made: a dataclass.
        where: keys that lead to it.

    Raises:
        TypeError: a value is of another type.
    """
    hints = get_type_hints(type(made))
    for field in dataclasses.fields(made):
        _check_type(getattr(made, field.name), hints[field.name], f"{where}{field.name}")


def _check_type(value: Any, hint: Any, where: str) -> None:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        check_types(value, f"{where}.")
    elif not _fits(value, hint):
        raise TypeError(f"{where}: expected {_named(hint)}, got {value!r:.60}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type of YAML; of a type that YAML does not know, True."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in inner)
    if origin is Literal:
        return value in inner
    if origin in (list, Sequence, tuple):
        return isinstance(value, list | tuple) and (origin is tuple or all(_fits(v, *inner) for v in value))
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if hint in (str, bool, type(None)) else True


def _named(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
