"""Arguments of the recorder's calls, checked and as plain dictionaries, lists and arrays."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedleak_recorder.arrays import FLOATS, HALF, Array, as_array
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.plain_values import whole_number

_SHORTEST_KEY = 16
"""Bytes of a secret key, 128 bits, below which pseudonyms could be guessed by trying all keys."""


def check_settings(*, folder: Any, holds: Any, dtype: Any, key: Any) -> None:
    """Checks the arguments of a recorder that are no mappings and no lists.

    Raises:
        InputError: one has another type or value, or type and kind of the arrays do not fit each other.
    """
    holds_fits = isinstance(holds, str) and holds in ("models", "deltas")
    require(holds_fits, "holds as 'models' or 'deltas'", ascii(holds)[:60], "Correct it.")
    dtype_fits = dtype is None or (isinstance(dtype, str) and dtype in FLOATS)
    require(dtype_fits, f"dtype among {', '.join(FLOATS)}", ascii(dtype)[:60], "Correct it.")
    is_exact = dtype not in HALF or holds == "deltas"
    way_out = "A difference of models is not exact in that type: leave out dtype, or give deltas."
    require(is_exact, f"holds='deltas' with dtype={dtype!r}", f"holds={holds!r}", way_out)
    if key is not None:
        # The error has the length alone, never the key.
        description = f"{len(key)}" if isinstance(key, bytes) else type(key).__name__
        is_long = isinstance(key, bytes) and len(key) >= _SHORTEST_KEY
        way_out = "Draw one: secrets.token_bytes(32)."
        require(is_long, f"a key of at least {_SHORTEST_KEY} bytes", description, way_out)
    is_path = isinstance(folder, str | os.PathLike) and "\0" not in str(folder)
    require(is_path, "a path as folder", ascii(folder)[:60], "Give the path of a new folder.")


def round_number(value: Any, what: str) -> int:
    """A number of a round; names of files have at most 15 digits for it."""
    way_out = "Number the rounds from 0 or 1 on."
    return whole_number(value, what=what, where="a call of the recorder", way_out=way_out, most=10**15 - 1)


def read_mapping(value: Any, what: str, *, keys: type = str) -> dict[Any, Any]:
    """A mapping; names of arrays and settings are texts, but a client may be known by any value."""
    require(isinstance(value, Mapping), f"a mapping as {what}", type(value).__name__, "Give it by name.")
    odd = [key for key in value if not isinstance(key, keys)]
    require(not odd, f"texts as names in {what}", _first_of(odd), "Write that name as a text.")
    return dict(value)


def read_optional(value: Any, what: str, *, keys: type = str) -> dict[Any, Any]:
    """A mapping, empty for None. Other values are not asked whether they are empty: an array has no answer."""
    if value is None:
        return {}
    return read_mapping(value, what, keys=keys)


def read_by_client(value: Any, what: str, updates: Mapping[Any, Any], *, of: str = "") -> dict[Any, Any]:
    """A mapping by client, of which each sent an update in the round; empty for None.

    Args:
        value: the mapping.
        what: name of the argument, for errors.
        updates: by client, what it sent.
        of: what the mapping holds, for errors, if `what` does not say it.
    """
    by_client = read_optional(value, what, keys=object)
    unknown = [client for client in by_client if client not in updates]
    content = of or what
    problem = f"{content} of {_first_of(unknown)}, which sent nothing"
    require(not unknown, f"{content} of the clients of the round", problem, "Correct the names.")
    return by_client


def read_list(value: Any, what: str) -> list[Any]:
    """A list, or another sequence; a text is none, though it is a sequence of letters."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    require(is_list, f"a list as {what}", ascii(type(value).__name__), "Give a list.")
    return list(value)


def read_update(sent: Any, client: Any) -> tuple[Any, Any]:
    """The arrays of a client and its number of examples."""
    is_pair = isinstance(sent, list | tuple) and len(sent) == 2
    description = f"{type(sent).__name__} of {client!r}"
    require(is_pair, "(arrays, number of examples) of each client", description, "Give both.")
    return sent[0], sent[1]


def read_grid(record_grid: Any) -> tuple[Array, Array] | None:
    """Step and origin of the numbers of a record; None for those of pixels."""
    if record_grid is None:
        return None
    is_pair = isinstance(record_grid, list | tuple) and len(record_grid) == 2
    way_out = "Give record_grid=(step, origin), each a number or one for each number of a record."
    require(is_pair, "a step and an origin as record_grid", ascii(type(record_grid).__name__), way_out)
    step = as_array(record_grid[0], where="record_grid")
    origin = as_array(record_grid[1], where="record_grid")
    are_finite = all(part.dtype.kind in "iuf" and bool(np.isfinite(part).all()) for part in (step, origin))
    # Numbers of records are divided by the step.
    fits = are_finite and bool((step != 0).all())
    require(fits, "finite numbers as record_grid, no step of 0", "others", way_out)
    return step, origin


def read_items(served: Any, client: Any) -> Array:
    """``(R,)`` numbers of the items that a client was served; an empty list has no type of whole numbers."""
    items = as_array(served, where=f"the served items of client {client}")
    are_whole_numbers = items.ndim == 1 and (items.dtype.kind in "iu" or not items.size)
    if not are_whole_numbers:
        raise InputError(
            expected="served items as whole numbers (R,)",
            found=f"{items.dtype} of shape {items.shape} for client {client}",
            way_out="Give their numbers.",
        )
    return items.astype(np.int64)


def is_shape(value: Any) -> bool:
    """Whether a value is a shape, in the place of an array of that shape."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False
    return all(isinstance(size, int | np.integer) for size in value)


def _first_of(names: list[Any]) -> str:
    """The first of some names as a short text of ASCII; empty if there is none."""
    return ascii(names[:1])[1:-1][:60]
