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
    section = policy.own
    replacements: dict[str, Any] = {}
    if section.data is not None and message.records is None and message.labels is None:
        replacements |= _records(Path(section.data))
    if section.network is not None and message.network is None:
        replacements["network"] = function_at(section.network)
    if section.algorithm is not None and message.algorithm is None:
        replacements["algorithm"] = function_at(section.algorithm)()
    if not replacements:
        return message
    return dataclasses.replace(message, **replacements)


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
    inputs = as_array(records, where="records")
    classes = as_array(labels, where="labels")
    # Each step-th record: N / MOST_RECORDS, rounded up.
    step = max(1, -(-len(inputs) // MOST_RECORDS))
    # Bytes are pixels, which networks get as numbers from 0 to 1.
    scale = 255 if inputs.dtype == np.uint8 else 1
    return (inputs[::step] / scale).astype(np.float32), classes[::step].astype(np.int64)


def _records(path: Path) -> dict[str, Any]:
    """The arrays ``records`` and ``labels`` of a file, or one of them."""
    regular_file(path, way_out=_WAY_OUT)
    expected = f"a .npz file with the arrays records and labels, or one of them, at {path}"
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("records", "labels") if name in file.files}
            names = ", ".join(file.files)
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(expected=expected, found=str(error), way_out=_WAY_OUT) from None
    require(arrays, expected, names or "none", _WAY_OUT)
    lengths = {len(value) for value in arrays.values() if value.ndim}
    require(len(lengths) == 1, "as many labels as records", lengths or "single numbers", _WAY_OUT)
    return arrays


def function_at(path: str) -> Any:
    """The function at ``module:name``, which takes no arguments.

    Raises:
        InputError: there is none.
    """
    module, _, name = path.partition(":")
    expected = f"a function at {path[:80]}"
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(expected=expected, found=str(error), way_out=_WAY_OUT) from None
    require(callable(function), expected, type(function).__name__, _WAY_OUT)
    return function
