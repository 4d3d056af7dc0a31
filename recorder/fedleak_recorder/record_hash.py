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
    return exact * _LEVELS if grid is None else (exact - grid[1]) / grid[0]


def record_bytes(records: Array, grid: Grid | None = None) -> list[bytes]:
    """Bytes of each record at its own precision.

    Args:
        records: ``(N, *shape)``. Numbers with a point are rounded to the grid, e.g. pixels in [0, 1] to their 8 bits;
            of whole numbers, e.g. token numbers ``(N, L)``, trailing zeros (padding) are left out.
        grid: step and origin of each number, that broadcast to ``shape``; None for multiples of 1/255.
    """
    if records.dtype.kind == "f":
        most = np.iinfo(np.int32).max
        whole = np.rint(levels(records, grid)).clip(-most, most).astype(np.int32)
        return [row.tobytes() for row in whole]
    return [np.trim_zeros(row.ravel(), "b").tobytes() for row in records.astype(np.int64)]


def record_hashes(records: Array, salt: Array, grid: Grid | None = None) -> Array:
    """``(N, 32)`` uint8 SHA-256 of a salt and each record.

    Args:
        records: ``(N, *shape)``, see `record_bytes`.
        salt: ``(16,)`` uint8, random for each client and round.
        grid: see `record_bytes`.
    """
    key = salt.astype(np.uint8).tobytes()
    found = b"".join(hashlib.sha256(key + content).digest() for content in record_bytes(records, grid))
    return np.frombuffer(found, np.uint8).reshape(-1, LENGTH).copy()


def check_grid(records: Array, grid: Grid | None, *, where: str) -> None:
    """Refuses records that are not on the grid, which no reconstruction could match.

    Raises:
        InputError: a number is not on the grid.
    """
    if records.dtype.kind != "f" or not records.size:
        return
    distance = np.abs(levels(records, grid) - np.rint(levels(records, grid)))
    require(
        bool(np.isfinite(distance).all()) and float(distance.max()) <= _OFF_GRID,
        f"records on a grid of {'1/255' if grid is None else 'record_grid'} in {where}",
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


def hashed_truth(records: Mapping[Any, Array], grid: Grid | None) -> dict[Any, dict[str, Array]]:
    """Ground truth of each client: a salt, hashes of its records ``(N, ...)`` padded with zeros, and their grid.

    Raises:
        InputError: records are not on the grid.
    """
    for client, value in records.items():
        way_out = "Give them as (N, ...); one record as an array with one entry."
        require(value.ndim > 0, f"a list of records of client {client}", "one number", way_out)
        require(value.dtype.kind in "biuf", f"real numbers as records of client {client}", value.dtype, "Give them.")
        for part in grid or ():
            shape = np.shape(part)
            fits = _broadcasts(shape, value.shape[1:])
            require(fits, f"record_grid for records of shape {value.shape[1:]}", f"shape {shape}", "Correct it.")
    most = max((len(value) for value in records.values()), default=0)
    found = {}
    for client, value in records.items():
        check_grid(value, grid, where=f"the records of client {client}")
        salt = np.frombuffer(secrets.token_bytes(SALT_LENGTH), np.uint8).copy()
        hashes = record_hashes(value, salt, grid)
        found[client] = {"record_salt": salt, "record_hash": np.pad(hashes, ((0, most - len(hashes)), (0, 0)))}
        if grid is not None:
            for name, part in zip((RECORD_STEP, RECORD_ORIGIN), grid, strict=True):
                found[client][name] = np.broadcast_to(np.asarray(part, np.float64), value.shape[1:]).copy()
    return found
