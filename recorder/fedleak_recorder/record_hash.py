"""Salted hashes of training examples, which prove an exact reconstruction without a copy of anybody's data.

They do not hide a record that can be guessed: who has hash and salt, which lie next to each other in the ground truth,
confirms each guess. The salt prevents only tables made in advance, and that equal records are recognised as equal.
"""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedleak_recorder.errors import require

Array = npt.NDArray[Any]

LENGTH = 32
"""Bytes of a hash."""
SALT_LENGTH = 16
"""Bytes of a salt."""
RECORD_STEP, RECORD_ORIGIN = "record_step", "record_origin"
"""Ground truth of a client: the grid of its records, if it is not that of 8-bit pixels in [0, 1]."""
_LEVELS = 255
"""Steps per unit to which numbers are rounded by default, those of pixels in [0, 1] with 8 bits."""
_OFF_GRID = 0.1
"""Distance from the grid, in steps, above which a number of a record is not on it."""

Grid = tuple[Any, Any]
"""Step and origin of each number of a record: its values are ``origin + whole number * step``."""


def levels(records: Array, grid: Grid | None = None) -> Array:
    """Numbers with a point as multiples of the grid's steps, by default of 1/255."""
    exact = records.astype(np.float64)
    if grid is None:
        return exact * _LEVELS
    step, origin = grid
    multiples: Array = (exact - origin) / step
    return multiples


def record_bytes(records: Array, grid: Grid | None = None) -> list[bytes]:
    """Bytes of each record at its own precision.

    Args:
        records: ``(N, *shape)``. Numbers with a point are rounded to the grid, e.g. pixels in [0, 1] to their 8 bits;
            of whole numbers, e.g. token numbers ``(N, L)``, trailing zeros (padding) are left out.
        grid: step and origin of each number, that broadcast to ``shape``; None for multiples of 1/255.
    """
    if records.dtype.kind == "f":
        # Numbers that round to one step have the same bytes. What int32 cannot hold is cut off before the cast.
        most = np.iinfo(np.int32).max
        steps = np.rint(levels(records, grid)).clip(-most, most).astype(np.int32)
        return [row.tobytes() for row in steps]
    # A row's zeros at the end ("b": back) are padding, of which a reconstruction may have more or less.
    return [np.trim_zeros(row.ravel(), "b").tobytes() for row in records.astype(np.int64)]


def record_hashes(records: Array, salt: Array, grid: Grid | None = None) -> Array:
    """``(N, 32)`` uint8 SHA-256 of a salt and each record.

    Args:
        records: ``(N, *shape)``, see `record_bytes`.
        salt: ``(16,)`` uint8, random for each client and round.
        grid: see `record_bytes`.
    """
    key = salt.astype(np.uint8).tobytes()
    # The salt comes first, so that equal records of two clients have different hashes.
    digests = b"".join(hashlib.sha256(key + content).digest() for content in record_bytes(records, grid))
    return np.frombuffer(digests, np.uint8).reshape(-1, LENGTH).copy()


def check_grid(records: Array, grid: Grid | None, *, where: str) -> None:
    """Refuses records that are not on the grid, which no reconstruction could match.

    Raises:
        InputError: a number is not on the grid.
    """
    if records.dtype.kind != "f" or not records.size:
        return
    steps = levels(records, grid)
    distance = np.abs(steps - np.rint(steps))
    # Finite first: NaN is no number on a grid.
    is_on_grid = bool(np.isfinite(distance).all()) and float(distance.max()) <= _OFF_GRID
    grid_name = "record_grid"
    if grid is None:
        grid_name = "1/255"
    require(
        is_on_grid,
        f"records on a grid of {grid_name} in {where}",
        f"a number {float(distance.max()):.2f} steps from it",
        "Give Recorder record_grid=(step, origin) of the numbers as the network gets them: for a column that was"
        " standardised, step is its precision divided by its standard deviation, and origin minus its mean divided by"
        " it. For token numbers, give whole numbers.",
    )


def _broadcasts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether an array of one shape can be broadcast to another."""
    try:
        return np.broadcast_shapes(shape, wanted) == wanted
    except ValueError:
        return False


def _check_records(records: Array, grid: Grid | None, client: Any) -> None:
    """Checks type and shape of a client's records, and that a grid fits them."""
    way_out = "Give them as (N, ...); one record as an array with one entry."
    require(records.ndim > 0, f"a list of records of client {client}", "one number", way_out)
    require(records.dtype.kind in "biuf", f"real numbers as records of client {client}", records.dtype, "Give them.")
    record_shape = records.shape[1:]
    for part in grid or ():
        fits = _broadcasts(np.shape(part), record_shape)
        require(fits, f"record_grid for records of shape {record_shape}", f"shape {np.shape(part)}", "Correct it.")


def hashed_truth(records: Mapping[Any, Array], grid: Grid | None) -> dict[Any, dict[str, Array]]:
    """Ground truth of each client: a salt, hashes of its records ``(N, ...)`` padded with zeros, and their grid.

    Raises:
        InputError: records are not on the grid.
    """
    for client, value in records.items():
        _check_records(value, grid, client)
    # All clients of a round have arrays of one shape, so that hashes are padded to the largest number of records.
    most = max((len(value) for value in records.values()), default=0)
    truth_by_client = {}
    for client, value in records.items():
        check_grid(value, grid, where=f"the records of client {client}")
        salt = np.frombuffer(secrets.token_bytes(SALT_LENGTH), np.uint8).copy()
        hashes = record_hashes(value, salt, grid)
        padded_hashes = np.pad(hashes, ((0, most - len(hashes)), (0, 0)))
        truth_by_client[client] = {"record_salt": salt, "record_hash": padded_hashes}
        if grid is not None:
            # One step and origin of each number, whatever shape they were given in.
            step, origin = grid
            shape = value.shape[1:]
            truth_by_client[client][RECORD_STEP] = np.broadcast_to(np.asarray(step, np.float64), shape).copy()
            truth_by_client[client][RECORD_ORIGIN] = np.broadcast_to(np.asarray(origin, np.float64), shape).copy()
    return truth_by_client
