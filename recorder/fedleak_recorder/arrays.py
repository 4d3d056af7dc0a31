"""Arrays of any framework as NumPy arrays, and as the bytes of a safetensors file."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
FLOATS = ("float64", "float32", "float16", "bfloat16")
"""Types of floating-point numbers that a recording may hold."""


def as_array(value: Any) -> Array:
    """A value as a NumPy array, without a copy where that is possible.

    Args:
        value: array of NumPy, tensor of PyTorch (of any device; bfloat16 becomes float32) or of another framework that
            NumPy can read, number, or list of numbers (fractions become float32).
    """
    if _is_tensor(value):
        value = value.detach().cpu()
        try:
            return np.asarray(value.numpy())
        except TypeError:  # a type that NumPy does not have
            return np.asarray(value.float().numpy())
    array = np.asarray(value)
    return array.astype(np.float32) if _is_plain(value) and array.dtype == np.float64 else array


def dtype_name(value: Any) -> str:
    """Type of the numbers of an array or tensor, e.g. ``"bfloat16"``."""
    return str(value.dtype).removeprefix("torch.")


def is_float(array: Array) -> bool:
    """Whether an array holds floating-point numbers."""
    return array.dtype.kind == "f"


def is_finite(array: Array) -> bool:
    """Whether an array holds real numbers, none of them NaN or infinite."""
    return array.dtype.kind in "iu" or (is_float(array) and bool(np.isfinite(array).all()))


def shard_bytes(arrays: Mapping[str, Any]) -> bytes:
    """Content of a safetensors file; the arrays may change afterwards.

    Args:
        arrays: arrays of NumPy, or tensors of PyTorch, by name.
    """
    content: bytes
    if any(_is_tensor(value) for value in arrays.values()):  # NumPy has no bfloat16
        from safetensors.torch import save as save_tensors

        content = save_tensors({name: value.detach().cpu().contiguous() for name, value in arrays.items()})
        return content
    from safetensors.numpy import save as save_arrays

    content = save_arrays({name: np.asarray(value, order="C") for name, value in arrays.items()})
    return content


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, Sequence) and not isinstance(value, str | bytes))
