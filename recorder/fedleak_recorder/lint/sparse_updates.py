"""Sparse updates: places of numbers beside the numbers."""

import numpy as np

from fedleak_recorder.arrays import Array
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.data_grid import FEWEST_BITS, grid_of, is_two_valued


def is_sparse_index(message: AnyMessage, name: str) -> bool:
    """Whether an array holds the places of the numbers of a sparse update, which stand beside it."""
    places = message.arrays[name]
    if places.dtype.kind not in "iu" or not places.ndim:
        return False
    return any(_is_pair(message, name, other) for other in message.others_with_axis(places.shape[-1], name))


def is_sparse_value(message: AnyMessage, name: str) -> bool:
    """Whether an array holds the numbers of a sparse update, whose places stand beside it."""
    values = message.arrays[name]
    return any(_is_pair(message, other, name) for other in message.others_with_axis(values.size, name))


def is_of_sparse_update(message: AnyMessage, name: str) -> bool:
    """Whether an array holds the places or the numbers of a sparse update."""
    return is_sparse_index(message, name) or is_sparse_value(message, name)


def _is_pair(message: AnyMessage, name: str, other: str) -> bool:
    """Whether one array has the places, and another in the same part the numbers of a sparse update."""
    places = message.arrays[name]
    values = message.arrays[other]
    is_beside = name.rpartition("/")[0] == other.rpartition("/")[0]
    if not is_beside or name in message.lists or values.dtype.kind != "f" or places.dtype.kind not in "iu":
        return False
    # One number for each place, or one row of an embedding.
    is_of_rows = values.ndim == 2 and len(values) == places.shape[-1]
    if not (values.size == places.shape[-1] or is_of_rows) or not _is_distinct(places):
        return False
    # Values on a grid of data are data too.
    grid = grid_of(values)
    return grid is None or grid.bits < FEWEST_BITS or is_two_valued(values)


def _is_distinct(places: Array) -> bool:
    """Whether no place stands twice."""
    rows = places.reshape(-1, places.shape[-1])
    return int(np.unique(rows, axis=1).shape[1]) == rows.shape[1]
