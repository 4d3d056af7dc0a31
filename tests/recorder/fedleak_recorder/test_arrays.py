"""Arrays of any framework, and the bytes that they become."""

from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from fedleak_recorder.arrays import as_array, cast, dtype_name, shard_bytes, widened
from fedleak_recorder.errors import InputError


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_])
def test_bytes_do_not_depend_on_the_framework(dtype: Any) -> None:
    arrays = {"b": np.arange(6).reshape(2, 3).astype(dtype).T, "a": np.array(1).astype(dtype), "c": np.zeros(0, dtype)}
    tensors = {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
    whole = {name: value.contiguous() for name, value in tensors.items()}
    assert shard_bytes(arrays) == shard_bytes(tensors) == save(whole)


def test_what_numpy_does_not_have_is_stored_as_it_is() -> None:
    tensor = torch.tensor([1.5, -2.0], dtype=torch.bfloat16, requires_grad=True)
    assert torch.equal(load(shard_bytes({"a": tensor}))["a"], tensor)
    assert as_array(tensor).dtype == np.float32
    assert as_array(tensor).tolist() == [1.5, -2.0]
    assert dtype_name(tensor) == "bfloat16"


def test_plain_numbers_become_integers_or_single_precision() -> None:
    assert as_array([1, 2]).dtype == np.int64
    assert as_array([0.1]).dtype == as_array(0.1).dtype == np.float32
    assert as_array(np.array([0.1])).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, ">f4"])
def test_arrays_keep_their_type(dtype: Any) -> None:
    array = as_array(np.array([1, 2], dtype))
    assert array.dtype == np.dtype(dtype).newbyteorder("=")
    assert array.tolist() == [1, 2]


def test_bfloat16_is_rounded_as_torch_does() -> None:
    values = np.array([0.1, -3.14159, 1e-40, 3.39e38, 1.00390625, 1.01171875, 0.0, -0.0, np.inf], np.float32)
    held = cast(values, "bfloat16")
    expected = torch.from_numpy(values).bfloat16()
    assert torch.equal(torch.from_numpy(widened(held)), expected.float())
    assert dtype_name(held) == "bfloat16"
    assert load(shard_bytes({"delta": held}))["delta"].equal(expected)


@pytest.mark.parametrize("value", [np.zeros(2, np.complex64), torch.zeros(2, dtype=torch.complex64), np.array(["a"])])
def test_a_type_that_no_file_has_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InputError, match=r"float32.*found (complex64|str)"):
        shard_bytes({"labels": value})


@pytest.mark.parametrize("value", [range(10**12), [range(10**12)], [[0, 1], (range(10**12), 1)], range(10**30)])
def test_a_range_that_memory_cannot_hold_is_refused_before_it_is_written_out(value: Any) -> None:
    with pytest.raises(InputError, match=r"found (range|list) \((ValueError: more than|OverflowError)"):
        as_array(value)
    assert as_array([range(2), (1, 2)]).tolist() == [[0, 1], [1, 2]]
