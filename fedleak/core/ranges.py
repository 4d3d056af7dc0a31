"""Ranges as types: a constructor's argument says which values it may have, and every reader refuses the others.

The types are those of `jsonargparse.typing`, which no type checker takes for types: it makes them when it is imported.
Here they are plain numbers to a type checker, so that a constructor may be called with one from Python; `check_fields`
refuses what is out of range there. `fedleak.core.checked_types` reads the limits of a type for pydantic.
"""

from typing import TYPE_CHECKING

from fedleak.core.argument_values import check_fields as check_fields

if TYPE_CHECKING:
    PositiveInt = int
    NonNegativeInt = int
    AtLeastTwo = int
    PositiveFloat = float
    NonNegativeFloat = float
    OpenUnitInterval = float
    UnitInterval = float
else:
    from jsonargparse import typing as numbers

    PositiveInt = numbers.PositiveInt
    PositiveFloat = numbers.PositiveFloat
    NonNegativeInt = numbers.NonNegativeInt
    NonNegativeFloat = numbers.NonNegativeFloat
    OpenUnitInterval = numbers.OpenUnitInterval
    UnitInterval = numbers.ClosedUnitInterval
    AtLeastTwo = numbers.restricted_number_type("AtLeastTwo", int, (">=", 2))
