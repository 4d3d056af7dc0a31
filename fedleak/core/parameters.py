"""Arguments that the constructor of a class takes, with their types and defaults."""

import dataclasses
import functools
import inspect
from typing import Any, get_type_hints


@dataclasses.dataclass(frozen=True)
class Parameter:
    """An argument of a constructor.

    Attributes:
        hint: its type; Any where there is none, or none that can be resolved.
        default: its default; `inspect.Parameter.empty` where there is none.
    """

    hint: Any
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether the constructor cannot be called without it."""
        return self.default is inspect.Parameter.empty


@functools.cache
def parameters_of(kind: type) -> dict[str, Parameter]:
    """Arguments of a class's constructor by name, including those passed on to the constructors of its bases."""
    hints = _hints(kind)
    parameters: dict[str, Parameter] = {}
    # From the class to its bases, without `object`; the first constructor that has an argument decides its default.
    for base in inspect.getmro(kind)[:-1]:
        if "__init__" not in vars(base):
            continue
        signature = inspect.signature(base).parameters.values()
        for parameter in signature:
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                hint = hints.get(parameter.name, Any)
                parameters.setdefault(parameter.name, Parameter(hint, parameter.default))
        # A constructor without **kwargs passes nothing on that its own arguments do not name.
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature):
            break
    return parameters


def _hints(kind: type) -> dict[str, Any]:
    """Types by the names of fields and of constructors' arguments, as far as they can be resolved."""
    hints: dict[str, Any] = {}
    for base in reversed(inspect.getmro(kind)[:-1]):
        if "__init__" in vars(base):
            hints |= _resolved(vars(base)["__init__"])
    if dataclasses.is_dataclass(kind):
        hints |= _resolved(kind)
    return hints


def _resolved(annotated: Any) -> dict[str, Any]:
    try:
        return get_type_hints(annotated)
    except (NameError, TypeError, AttributeError):  # of a type that is imported only where types are checked
        return {}


def argument_names(kind: type) -> list[str]:
    """Names of the arguments of a class's constructor, including those passed on to its bases."""
    return list(parameters_of(kind))


def class_path(kind: type) -> str:
    """Module and name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"
