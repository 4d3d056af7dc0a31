"""Checks of the fields of dataclasses, and of arguments of constructors, by their types."""

import dataclasses
import functools
from collections.abc import Mapping
from types import GenericAlias, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints


def check_fields(config: Any) -> None:
    """Checks the values of a dataclass against those of its types that are ranges or choices.

    Raises:
        ValueError: a value is out of its field's range, or not among its choices.
    """
    hints = _hints(config.__class__)
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        wrong = [kind for kind in kinds if value is not None and not _fits(value, kind)]
        if wrong and len(wrong) == len([kind for kind in kinds if kind is not type(None)]):
            ranges = " or ".join(_range(kind, field.name) for kind in wrong)
            raise ValueError(f"expected {ranges}, got {value!r}")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """Types of the fields of a class."""
    return get_type_hints(kind)


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if _of_equal_parts(kind):
        return isinstance(value, tuple | list) and all(_fits(part, get_args(kind)[0]) for part in value)
    if hasattr(kind, "_expression"):
        try:
            kind(value)
        except (TypeError, ValueError):
            return False
    return True


def _range(kind: Any, name: str) -> str:
    if get_origin(kind) is Literal:
        return f"{name} to be one of {', '.join(get_args(kind))}"
    if _of_equal_parts(kind):
        return f"each of {_range(get_args(kind)[0], name)}"
    return str(kind._expression.replace("v", name)) if hasattr(kind, "_expression") else f"{name} a {kind.__name__}"


def _of_equal_parts(kind: Any) -> bool:
    """Whether a type is a tuple of any length."""
    return get_origin(kind) is tuple and get_args(kind)[1:] == (Ellipsis,)


def typed_arguments(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a constructor, given as plain values, in the types that it declares.

    Args:
        kind: the class.
        given: values by name, e.g. of a table or the command line: a text such as ``"1e-3"`` becomes a number.

    Raises:
        ValueError: a value is not of its argument's type, or out of its range.
    """
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    typed = dict(given)
    try:
        hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    except NameError:  # of a type that is imported only where types are checked
        return typed
    for name in given.keys() & hints.keys():
        hint = _checkable(hints[name])
        config = ConfigDict(arbitrary_types_allowed=True, coerce_numbers_to_str=True)
        try:
            adapter = TypeAdapter(hint, config=None if dataclasses.is_dataclass(hint) else config)
            typed[name] = adapter.validate_python(given[name])
        except ValidationError as error:
            problem = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ValueError(f"{name}={given[name]!r}: {problem[0].lower()}{problem[1:]}") from None
    return typed


def _checkable(hint: Any) -> Any:
    """Type hint that pydantic checks: numbers with a validator in place of the types of ranges."""
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(map(_checkable, get_args(hint)))]  # noqa: UP007
    if _of_equal_parts(hint):
        return GenericAlias(tuple, (_checkable(get_args(hint)[0]), ...))
    if not hasattr(hint, "_expression"):
        return hint
    from pydantic import AfterValidator

    def in_range(value: Any) -> Any:
        try:
            hint(value)
        except ValueError:
            raise ValueError(f"expected a number {hint._expression.replace('v', '')}") from None
        return value

    return Annotated[hint._type, AfterValidator(in_range)]
