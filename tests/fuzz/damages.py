"""What can be wrong with a file of a stranger, by name: for the fuzz targets, and for tests that name the refusal."""

import io
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 1.5, -0.0, 1e308, -1e308, float("nan"), float("inf"), 2**31, 2**63, 10**30),
    *("", " ", "a", "0", "-1", "1e9", "NaN", "\x00", "\u202eabc", "x" * 5000, "../../etc/passwd", "/etc/passwd"),
    *([], [[]], [None], [0], [-1], [1, [2]], {}, {"a": 1}, {"": None}, [10**12], [2**62, 4], ["float32"], "os.system"),
]
"""Odd values of a JSON or YAML file, wherever they stand."""
TEXTS = b"|-1|0|NaN|inf|1e308|1e3|99999999999999999999|9223372036854775808|0x10|1.5|1_000|6|77|+3|1,5|../../x|7 7"
"""Odd fields of a line, separated by ``|``."""
_RELEASE: dict[str, Any] = {"clip": None, "noise_scale": 0.0, "parameters": []}
FIELDS: dict[str, list[Any]] = {
    "format": [True, 2, 1.0],
    "data": [None, "x", {}, {"name": None}, {"name": ["a"]}],
    "parameters": [[], {}, {"a": 5}, {"a": [True]}],
    "row_parameters": [5, "item_embedding.weight", [1]],
    "releases": [
        *("abc", 5, [5], [{**_RELEASE, "noise": 1}], [{**_RELEASE, "noise_scale": -1.0}]),
        *([{**_RELEASE, "clip": 0}], [{**_RELEASE, "noise_scale": True}], [{**_RELEASE, "parameters": 5}]),
    ],
    "learner": ["fncf", ["fncf"]],
    "auxiliary": [5],
}
"""By key, what the manifests of recordings and of dumps refuse in a message that names the key."""
TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    "NaN": lambda t: t.float() * float("nan"),
    "infinite": lambda t: t.float() + float("inf"),
    "one NaN": lambda t: t.float().flatten().index_fill(0, torch.tensor([0]), float("nan")).reshape(t.shape),
    "large": lambda t: t * (1e30 if t.is_floating_point() else 2**40),
    "far": lambda t: t + 10**9,
    "negative": lambda t: -t - 1,
    "zero": torch.zeros_like,
    "double": lambda t: t.double(),
    "half": lambda t: t.half(),
    "int8": lambda t: t.to(torch.int8),
    "int64": lambda t: t.long(),
    "bool": lambda t: t != 0,
    "complex": lambda t: t.to(torch.complex64),
    "shorter": lambda t: t[:-1],
    "longer": lambda t: torch.cat([t, t[:1]]),
    "another dimension": lambda t: t[None],
    "flat": lambda t: t.flatten(),
    "scalar": lambda t: t.flatten()[0],
    "empty": lambda t: t[:0],
    "reversed": lambda t: t.flip(0),
    "all alike": lambda t: t[torch.zeros(len(t), dtype=torch.int64)],
    "largest": lambda t: torch.full(t.shape, 2**63 - 1, dtype=torch.int64),
    "transposed": lambda t: t.transpose(0, -1),
}
ARRAYS: dict[str, Callable[[Any], Any]] = {
    "NaN": lambda a: a * np.float32("nan"),
    "infinite": lambda a: a + np.float32("inf"),
    "double": lambda a: a.astype(np.float64),
    "int8": lambda a: a.astype(np.int8),
    "unsigned": lambda a: a.astype(np.uint64),
    "complex": lambda a: a.astype(np.complex64),
    "bool": lambda a: a.astype(bool),
    "shorter": lambda a: a[..., :-1],
    "another dimension": lambda a: a[None],
    "flat": lambda a: a.ravel(),
    "empty": lambda a: np.zeros((len(a.shape), 0, 3)),
    "scalar": lambda a: np.float32(a.size),
    "columns first": np.asfortranarray,
    "bytes turned": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "texts": lambda a: np.full(a.shape, "a"),
    "records": lambda a: np.zeros(a.shape, dtype=[("a", "f4"), ("b", "i4")]),
    "objects": lambda a: np.array([{"a": a}], dtype=object),
    "dates": lambda a: np.zeros(a.shape, "datetime64[s]"),
    "large": lambda a: a.astype(np.float64) * 1e300,
}
SHAPES = [
    *("(1000000000000,)", "(3000000000,)", "(-1,)", "(True,)", "(1.5,)", "('a',)", "5", "[1]"),
    *("(" + "1," * 5000 + ")", "(1" * 500 + ")" * 500),
]
"""Of an array, in the header of a file that holds less, or as no header has it."""
TYPES = ["'<f4'", "'|O'", "'>f4'", "'|S99999999'", "'<U1000000000'", "[('a','<f4')]", "__import__('os')"]


def npy(shape: str, kind: str = "'<f4'", content: bytes = b"\0" * 100) -> bytes:
    """A file of one array, whose header says something else than what follows."""
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}}}".encode()
    header += b" " * (64 - (len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def archive(members: Mapping[str, bytes]) -> bytes:
    """A compressed zip file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def flagged(content: bytes, *, method: int | None = None) -> bytes:
    """The zip file, encrypted, or of a compression that there is not."""
    data = bytearray(content)
    for mark, flags, kind in ((b"PK\x03\x04", 6, 8), (b"PK\x01\x02", 8, 10)):
        place = data.find(mark)
        while place >= 0:
            if method is None:
                data[place + flags] |= 1
            else:
                data[place + kind] = method
            place = data.find(mark, place + 4)
    return bytes(data)
