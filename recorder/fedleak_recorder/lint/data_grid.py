"""Values on a grid that data has and trained numbers do not: whole numbers, few decimals, pixels."""

from dataclasses import dataclass

import numpy as np

from fedleak_recorder.arrays import Array

_STEPS = (1.0, 0.1, 0.01, 0.001, 0.0001)
"""Steps of data: ages, temperatures, prices, laboratory values."""
_PIXEL = 1 / 255
"""Step of an image of 8 bits with values from 0 to 1."""
_SHORT_MANTISSA = 8
"""Binary digits of a number of bfloat16, which arrives as float32 whose lower 16 bits are 0."""
_MANTISSA = {"float16": 11, "float32": 24, "float64": 53}
_BINS = 17
_WHOLE_BITS = 8.0
"""Bits that a whole number other than 0 counts for in an array of whole numbers, whose grid is no choice of the data
but whose type is."""

_FEWEST_MASKED = 256
"""Numbers from which on a power of two differs from 10**9 as the end of their range."""
_SMALLEST_MODULUS = 2**16
"""Smallest modulus of a secure sum; ages, codes and 8-bit images lie below it."""

FEWEST_BITS = 64.0
"""Bits of a grid from which on values are on it not by chance: one in 2**64."""


@dataclass(frozen=True)
class Grid:
    """The grid that all values are on.

    Attributes:
        step: distance of neighbours: 1 for whole numbers, 0.1 for one decimal ..., 1/255 for pixels.
        bits: by how many bits the values are on it beyond what their type of numbers gives; 0 and values that the type
            cannot put between two points of the grid count nothing.
    """

    step: float
    bits: float

    @property
    def words(self) -> str:
        """The values, in words."""
        if self.step == 1.0:
            return "whole numbers"
        if self.step == _PIXEL:
            return "pixels of 8 bits"
        return f"numbers of at most {round(-np.log10(self.step))} decimals"


def grid_of(values: Array) -> Grid | None:
    """The widest grid of data that all values are on; None if they are on none.

    Trained numbers of single precision have 24 binary digits, so that one near 1 is a number of 2 decimals with a
    chance of one in 80,000.

    Args:
        values: of any shape and of any type of real numbers, all finite.

    Example:
        >>> ages = np.array([34, 51, 78], "f")
        >>> grid_of(ages).words, grid_of(ages / 7) is None
        ('whole numbers', True)
    """
    flat = values.reshape(-1)
    if flat.dtype.kind in "biu":
        return Grid(1.0, _WHOLE_BITS * float(np.count_nonzero(flat)))
    if flat.dtype.kind != "f" or str(flat.dtype) not in _MANTISSA:
        return None
    nonzero = flat[flat != 0]
    if not len(nonzero):
        return None
    steps = list(_STEPS)
    if np.abs(nonzero).max() <= 1:
        steps.append(_PIXEL)
    for step in steps:
        # The nearest points of the grid, in the type of the values.
        per_unit = 255.0 if step == _PIXEL else round(1 / step)
        exact = nonzero.astype(np.float64)
        on_grid = (np.round(exact * per_unit) / per_unit).astype(flat.dtype)
        is_on_grid = on_grid == nonzero
        if step == _PIXEL:
            # Pixels that were multiplied by 1/255 in their type may differ from those divided by 255 in the last digit.
            is_on_grid |= np.round(exact * per_unit).astype(flat.dtype) * flat.dtype.type(_PIXEL) == nonzero
        if is_on_grid.all():
            return Grid(step, _bits(exact, step, _digits(nonzero)))
    return None


def _digits(values: Array) -> int:
    """Binary digits that the type of some values has, or the shorter one that they fit."""
    if values.dtype == np.float32 and not (np.ascontiguousarray(values).view(np.uint32) & 0xFFFF).any():
        return _SHORT_MANTISSA
    return _MANTISSA[str(values.dtype)]


def _bits(values: Array, step: float, digits: int) -> float:
    """Bits by which values are on a grid beyond what a type with so many binary digits gives."""
    _, exponents = np.frexp(values)
    distances = np.ldexp(1.0, exponents - digits)  # of neighbouring numbers of the type
    bits: Array = np.log2(step / distances)
    return float(np.clip(bits, 0, None).sum())


def is_two_valued(values: Array) -> bool:
    """Whether all values other than 0 have one magnitude, as in signs, masks and updates of three values."""
    magnitudes = np.abs(values[values != 0].astype(np.float64))
    if not len(magnitudes):
        return True
    return bool(magnitudes.min() == magnitudes.max())


def is_around_zero_point(values: Array) -> bool:
    """Whether whole numbers lie on both sides of their most frequent one, as quantised updates do and counts do not.

    >>> is_around_zero_point(np.array([-3, 0, 0, 2, -1, 0])), is_around_zero_point(np.array([0, 0, 3, 7]))
    (True, False)
    """
    flat = values.reshape(-1).astype(np.float64)
    low, high = flat.min(), flat.max()
    # In 17 bins, as single values are too rare to have a most frequent one; few values have bins of their own.
    counts, edges = np.histogram(flat, bins=_BINS, range=(low - 0.5, high + 0.5))
    fullest = int(np.argmax(counts))
    # At least a tenth on each side: data has its most frequent value at an end, or hardly any below 0.
    below = float(np.mean(flat < edges[fullest]))
    above = float(np.mean(flat > edges[fullest + 1]))
    return min(below, above) >= 0.1


def is_masked(values: Array) -> bool:
    """Whether whole numbers are spread evenly from 0 to a power of two, as those under a mask of a secure sum are.

    >>> draws = np.random.default_rng(0)
    >>> is_masked(draws.integers(0, 2**32, 500)), is_masked(draws.integers(0, 10**9, 500))
    (True, False)
    """
    if values.dtype.kind not in "iu" or values.size < _FEWEST_MASKED:
        return False
    low, high = int(values.min()), int(values.max())
    modulus = 2 ** high.bit_length()
    if low < 0 or modulus < _SMALLEST_MODULUS:
        return False
    # The smallest or the largest of n even draws is further from its end than 16 / n with a chance of e**-16.
    margin = 16 * modulus / values.size
    if low > margin or modulus - high > margin:
        return False
    # Four standard deviations of the mean of even draws; amounts of money lie mostly below half of the largest one.
    mean = float(values.mean(dtype=np.float64)) / modulus
    return bool(abs(mean - 0.5) < 4 / np.sqrt(12 * values.size))
