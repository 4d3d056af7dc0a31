"""Ranges as types: a constructor's argument says which values it may have, and the parser refuses the others.

The types are those of `jsonargparse.typing`, which no type checker takes for types: it makes them when it is imported.
Here they are plain numbers to a type checker, so that a constructor may be called with one from Python; `check_fields`
refuses what is out of range there.
"""

import dataclasses
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    PositiveInt = int
    NonNegativeInt = int
    AtLeastTwo = int
    PositiveFloat = float
    NonNegativeFloat = float
    OpenUnitInterval = float
    UnitInterval = float
else:
    from jsonargparse.typing import (
        ClosedUnitInterval,
        NonNegativeFloat,
        NonNegativeInt,
        OpenUnitInterval,
        PositiveFloat,
        PositiveInt,
        restricted_number_type,
    )

    AtLeastTwo = restricted_number_type("AtLeastTwo", int, (">=", 2))
    UnitInterval = ClosedUnitInterval

__all__ = [
    "AtLeastTwo",
    "NonNegativeFloat",
    "NonNegativeInt",
    "OpenUnitInterval",
    "PositiveFloat",
    "PositiveInt",
    "UnitInterval",
    "check_fields",
]


def check_fields(config: Any) -> None:
    """Checks the values of a dataclass against those of its types that are ranges or choices.

    Raises:
        ValueError: a value is out of its field's range, or not among its choices.
    """
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        for kind in kinds if value is not None else ():
            if get_origin(kind) is Literal and value not in get_args(kind):
                raise ValueError(f"expected {field.name} to be one of {', '.join(get_args(kind))}, got {value!r}")
            if hasattr(kind, "_expression"):
                try:
                    kind(value)
                except (TypeError, ValueError):
                    range_ = kind._expression.replace("v", field.name)
                    raise ValueError(f"expected {range_}, got {value!r}") from None
