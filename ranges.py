"""Ranges as types: a constructor's argument says which numbers it may be, and the parser refuses the others.

To a type checker they are plain numbers, so that a constructor may be called with one from Python.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    PositiveInt = int
    NonNegativeInt = int
    NonNegativeFloat = float
else:
    from jsonargparse.typing import NonNegativeFloat, NonNegativeInt, PositiveInt

__all__ = ["NonNegativeFloat", "NonNegativeInt", "PositiveInt"]
