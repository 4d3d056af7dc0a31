"""Arrays of any framework as NumPy arrays, and as the bytes of a safetensors file."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedleak_recorder.errors import InputError, require

Array = np.ndarray[Any, np.dtype[Any]]
FLOATS = ("float64", "float32", "float16", "bfloat16")
"""Types of floating-point numbers that a recording may hold."""
HALF = ("float16", "bfloat16")
"""Those of two bytes."""
BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
"""The bits of bfloat16, which NumPy does not have."""
_KINDS = {
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    "bool": "BOOL",
}
"""Types of NumPy as a safetensors file names them."""
_NATIVE = frozenset(map(np.dtype, _KINDS))
_MOST_ENTRIES = 2**27
"""Entries of the longest sequence that NumPy may write out one by one: 1 GiB of whole numbers."""
_WAY_OUT = "Give a dense array of NumPy, a tensor, or a list of numbers."


def as_array(value: Any, *, where: str = "an array") -> Array:
    """A value as a NumPy array, without a copy where that is possible.

    Args:
        value: array of NumPy, tensor of PyTorch (of any device; bfloat16 becomes float32) or of another framework that
            NumPy can read, number, or list of numbers (fractions become float32 if they fit).
        where: what it is, for errors.

    Raises:
        InputError: it is none of these, or some of its entries have no value: objects, texts, dates, sparse and
            quantized tensors, tensors without memory, masked entries; or it is a sequence, such as a range, of more
            entries than memory may hold.
    """
    # Most values are arrays that need no conversion; subclasses, such as masked arrays, go through it.
    if type(value) is np.ndarray and value.dtype in _NATIVE:
        return value
    expected = f"real numbers as {where}"
    try:
        array = _converted(value)
    # No fault of the value, which a message about its type would hide.
    except MemoryError:
        raise
    except Exception as error:  # whatever the conversion of a foreign object raises
        problem = f"{type(value).__name__} ({type(error).__name__}: {error})"
        raise InputError(expected=expected, found=problem, way_out=_WAY_OUT) from None
    require(array.dtype.kind in "biufc", expected, f"{type(value).__name__} of {array.dtype}", _WAY_OUT)
    return array


def _converted(value: Any) -> Array:
    """A value as an array of NumPy, whatever its type of numbers is."""
    if _is_tensor(value):
        # Conjugate and negative views of PyTorch are flags on the memory, which NumPy would not see.
        value = value.detach().cpu().resolve_conj().resolve_neg()
        try:
            return np.asarray(value.numpy())
        except TypeError:  # a type that NumPy does not have
            return np.asarray(value.float().numpy())
    if np.ma.is_masked(value):
        raise ValueError("masked entries")
    _check_length(value)
    array = np.asarray(value)
    if array.dtype.kind == "f" and array.dtype.itemsize > np.dtype(np.float64).itemsize:
        array = array.astype(np.float64)  # safetensors has no wider type
    if _is_plain(value) and array.dtype == np.float64:
        # Python's numbers are of double precision without anybody having chosen it, models of single precision.
        narrow = cast(array, "float32")
        return narrow if np.isfinite(narrow).all() else array
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_length(value: Any) -> None:
    """Checks that no sequence in a value, which NumPy writes out entry by entry, has more entries than it stores.

    Lists and tuples are in memory already, so only what they hold is checked.

    Raises:
        ValueError: one has.
    """
    if isinstance(value, list | tuple):
        for entry in value:
            if not isinstance(entry, int | float):
                _check_length(entry)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) > _MOST_ENTRIES:
        raise ValueError(f"more than {_MOST_ENTRIES} entries")


def numpy_type(dtype: str) -> np.dtype[Any]:
    """Type of NumPy by its name among `FLOATS`."""
    return BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)


def cast(array: Array, dtype: str) -> Array:
    """An array in another type; what that type cannot hold becomes infinite, without a warning.

    Numbers become bfloat16 by rounding to nearest, ties to even; finite ones that are too large become infinite.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype != "bfloat16":
            return array.astype(dtype)
        # bfloat16 is the upper half of float32. Half a step, 0x8000, less one where the last kept bit is 0 rounds to
        # nearest: a tie is carried over only if that bit is 1, that is, towards even.
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
        last_kept_bit = bits >> 16 & 1
        rounded: Array = ((bits + (0x7FFF + last_kept_bit)) >> 16).astype(np.uint16)
        return rounded.view(BFLOAT16).reshape(array.shape)


def widened(array: Array) -> Array:
    """An array of `BFLOAT16` as float32, with the same numbers; any other one as it is."""
    if array.dtype != BFLOAT16:
        return array
    bits: Array = array["bfloat16"].astype(np.uint32) << 16
    return bits.view(np.float32)


def dtype_name(value: Any) -> str:
    """Type of the numbers of an array or tensor, e.g. ``"bfloat16"``."""
    return "bfloat16" if value.dtype == BFLOAT16 else str(value.dtype).removeprefix("torch.")


def is_float(array: Array) -> bool:
    """Whether an array holds floating-point numbers."""
    return array.dtype.kind == "f"


def is_finite(array: Array) -> bool:
    """Whether an array holds real numbers, none of them NaN or infinite."""
    if not is_float(array):
        return array.dtype.kind in "iu"
    # The sum is infinite or NaN if a number is; it may also overflow, and only then each number is looked at.
    with np.errstate(over="ignore", invalid="ignore"):  # a finite sum needs one pass; an infinite one may be large
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


def shard_bytes(arrays: Mapping[str, Any]) -> bytes:
    """Content of a safetensors file of arrays of NumPy or tensors of PyTorch, which may change afterwards."""
    return b"".join(shard_parts(arrays))


def shard_parts(arrays: Mapping[str, Any]) -> list[memoryview]:
    """The same in parts: a header, and the memory of each array, which is not copied where it is contiguous.

    The safetensors package copies every array twice, which a round of a large model does not allow.

    References:
        The safetensors format, https://huggingface.co/docs/safetensors.
    """
    typed_arrays = {name: _plain_array(value) for name, value in arrays.items()}
    # The widest types first: each array then begins at a multiple of the size of its numbers, as the format wants.
    order = sorted(typed_arrays, key=lambda name: (-typed_arrays[name][0].itemsize, name))
    header: dict[str, Any] = {}
    offset = 0
    for name in order:
        array, kind = typed_arrays[name]
        end = offset + array.nbytes
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    # The header is padded with spaces to a multiple of 8 bytes, behind its own length in 8 bytes.
    text += b" " * (-len(text) % 8)
    parts = [memoryview(len(text).to_bytes(8, "little") + text)]
    for name in order:
        array, _ = typed_arrays[name]
        if array.nbytes:  # a view of no bytes cannot be made
            parts.append(array.reshape(-1).view(np.uint8).data)
    return parts


def _plain_array(value: Any) -> tuple[Array, str]:
    """A contiguous array with the same memory where possible, and its type as safetensors names it."""
    if not _is_tensor(value):
        array = np.asarray(value, order="C")
        if array.dtype == BFLOAT16:
            return array, "BF16"
        return array, _kind_of(array)
    import torch

    value = value.detach().cpu().contiguous()
    if value.dtype == torch.bfloat16:  # which NumPy does not have, so that its bits are written
        return value.view(torch.int16).numpy(), "BF16"
    array = value.numpy()
    return array, _kind_of(array)


def _kind_of(array: Array) -> str:
    """The type of an array as safetensors names it."""
    type_name = array.dtype.name
    require(type_name in _KINDS, f"numbers of a type among {', '.join(_KINDS)}", type_name, _WAY_OUT)
    return _KINDS[type_name]


def _is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch, which is not imported for this: without it there is no tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_plain(value: Any) -> bool:
    """Whether a value is a number or a sequence of Python's, which says nothing of a precision."""
    if isinstance(value, int | float):
        return True
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
