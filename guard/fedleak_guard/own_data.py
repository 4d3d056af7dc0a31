"""What the site has itself, for the checks that need it: training records, the network, and what the client runs."""

import copy
import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedleak_guard.message import Message
from fedleak_guard.policy import Policy
from fedleak_recorder.arrays import Array, as_array
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.files import regular_file

MOST_RECORDS = 32
"""Own records that checks of a received model look at, evenly spaced ones of more; each has a gradient of its own."""
_WAY_OUT = "Correct the policy's section own; until then nothing leaves the site."


def with_own_data(message: Message, policy: Policy) -> Message:
    """A message with what the policy's section ``own`` names, where the message itself does not have it.

    Raises:
        InputError: a file or a function that the policy names is missing, or is no such thing.
    """
    own, given = policy.own, dict[str, Any]()
    if own.data is not None and message.records is None and message.labels is None:
        given |= _records(Path(own.data))
    if own.network is not None and message.network is None:
        given["network"] = function_at(own.network)
    if own.algorithm is not None and message.algorithm is None:
        given["algorithm"] = function_at(own.algorithm)()
    return dataclasses.replace(message, **given) if given else message


def network_of(message: Message) -> Callable[[], Any] | None:
    """Makes the client's network; None if neither the message nor its algorithm has one."""
    algorithm = message.algorithm
    if message.network is None and hasattr(algorithm, "template"):
        return lambda: copy.deepcopy(algorithm.template)
    return message.network


def chosen_records(records: Any, labels: Any) -> tuple[Array, Array] | None:
    """``(N, ...)`` at most `MOST_RECORDS` own records as float32 and ``(N,)`` their classes; None without both."""
    if records is None or labels is None:
        return None
    inputs, classes = as_array(records, where="records"), as_array(labels, where="labels")
    step = max(1, -(-len(inputs) // MOST_RECORDS))
    inputs, scale = inputs[::step], 255 if inputs.dtype == np.uint8 else 1
    return (inputs / scale).astype(np.float32), classes[::step].astype(np.int64)


def _records(path: Path) -> dict[str, Any]:
    regular_file(path, way_out=_WAY_OUT)
    expected = f"a .npz file with the arrays records and labels, or one of them, at {path}"
    try:
        with np.load(path, allow_pickle=False) as held:
            found = {name: held[name] for name in ("records", "labels") if name in held.files}
            names = ", ".join(held.files)
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(expected=expected, found=str(error), way_out=_WAY_OUT) from None
    require(found, expected, names or "none", _WAY_OUT)
    lengths = {len(value) for value in found.values() if value.ndim}
    require(len(lengths) == 1, "as many labels as records", lengths or "single numbers", _WAY_OUT)
    return found


def function_at(path: str) -> Any:
    """The function at ``module:name``, which takes no arguments.

    Raises:
        InputError: there is none.
    """
    module, _, name = path.partition(":")
    expected = f"a function at {path[:80]}"
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(expected=expected, found=str(error), way_out=_WAY_OUT) from None
    require(callable(found), expected, type(found).__name__, _WAY_OUT)
    return found
