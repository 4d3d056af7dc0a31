"""The finite, real numbers of a message that a lint looks at, as many as time allows."""

import numpy as np

from fedleak_recorder.arrays import Array

MOST_ROWS = 512
"""Rows of an array that are looked at."""
MOST_COLUMNS = 64
"""Columns of an array that are looked at."""
_FEWEST = 2
"""Rows, or numbers of a column, that can be compared."""


def rows_of(array: Array) -> Array | None:
    """``(rows, columns)`` first rows and columns of an array, whose further axes count as columns.

    Rows with a number that is not finite, as missing values are, are left out. None if fewer than two rows remain.

    >>> rows_of(np.zeros((1000, 3, 40))).shape
    (512, 64)
    """
    if array.ndim == 0 or len(array) < 2 or array.size == 0 or array.dtype.kind not in "biuf":
        return None
    first = array[:MOST_ROWS].reshape(min(len(array), MOST_ROWS), -1)[:, :MOST_COLUMNS]
    if first.dtype.kind == "f":
        first = first[np.isfinite(first).all(axis=1)]
    return first if len(first) >= _FEWEST else None


def column_of(array: Array, most: int = 2**16) -> Array | None:
    """``(N,)`` finite numbers of an array that is one row or one column of them; None for other arrays."""
    if array.dtype.kind not in "biuf" or array.size < _FEWEST or array.size != max(array.shape, default=0):
        return None
    flat = array.reshape(-1)[:most]
    if flat.dtype.kind == "f":
        flat = flat[np.isfinite(flat)]
    return flat if len(flat) >= _FEWEST else None
