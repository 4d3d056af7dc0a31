"""Parts of an NVFlare result in one form, in which only checked numbers say anything, and a seal of all of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from nvflare.apis.dxo import DataKind

from fedleak_guard.message import tensors_hash
from fedleak_recorder.arrays import Array, as_array


def has_empty_part(value: Any) -> bool:
    """Whether a list or mapping holds an empty one at any depth, whose place and name would be all that it says."""
    if not isinstance(value, Mapping | list | tuple):
        return False
    parts = list(value.values()) if isinstance(value, Mapping) else list(value)
    for part in parts:
        is_empty = isinstance(part, Mapping | list | tuple) and not part
        if is_empty or has_empty_part(part):
            return True
    return False


def in_order(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics in the order of their names and with numbers of one type, so that neither says anything."""
    return {name: _plain_numbers(metrics[name]) for name in sorted(metrics)}


def _plain_numbers(value: Any) -> Any:
    """A metric with numbers of one type."""
    if isinstance(value, Mapping):
        return in_order(value)
    if isinstance(value, list):
        return [_plain_numbers(part) for part in value]
    return float(value)


def is_torch(value: Any) -> bool:
    """Whether a value is one of PyTorch, which is not imported for this."""
    return type(value).__module__.partition(".")[0] == "torch"


def as_before(value: Array, sent: Any) -> Any:
    """An array in the framework of the sent one, in C order and of the type that was checked; bytes for bytes."""
    if isinstance(sent, bytes | bytearray):
        # One type for both, so that it says nothing.
        return value.tobytes()
    value = np.array(value, order="C")
    if not is_torch(sent):
        return value
    import torch

    tensor = torch.from_numpy(value)
    # bfloat16 was checked as such, though NumPy holds it as float32; of other types, such as float8, float32 was.
    return tensor.bfloat16() if sent.dtype == torch.bfloat16 else tensor


def sealed(result: Mapping[str, Any]) -> tuple[Any, str]:
    """Everything that a result holds: plain values, types and memory layout of its arrays, and a hash of them by place.

    Raises:
        InputError: it holds something else.
    """
    arrays: dict[str, Array] = {}

    def plain(value: Any, location: str) -> Any:
        if isinstance(value, Mapping):
            # As a list of pairs, in their order, since the order could say something too.
            pairs = []
            for key, part in value.items():
                pairs.append([plain(key, location), plain(part, f"{location}/{key}")])
            return pairs
        if value is None or type(value) in (bool, int, float, str, DataKind):
            # With its type: 1, True and 1.0 are equal.
            return [type(value).__name__, value]
        if isinstance(value, list):
            return [plain(part, f"{location}/{number}") for number, part in enumerate(value)]
        if isinstance(value, bytes):  # of bytes their number, and the hash
            arrays[location] = np.frombuffer(value, np.uint8)
            return ["bytes", len(value)]
        # What is no array raises; of an array all is compared but its numbers, which the hash is of.
        arrays[location] = as_array(value, where=location)
        strides = value.stride() if is_torch(value) else value.strides
        return [type(value).__name__, str(value.dtype), tuple(strides), getattr(value, "requires_grad", False)]

    return plain(result, ""), tensors_hash(arrays)
