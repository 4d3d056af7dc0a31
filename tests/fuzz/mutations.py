"""One change of bytes, of a JSON value, of a tensor, or of an archive; what is drawn is said in a few words."""

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

Changed = tuple[bytes, str]
_ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 1.5, -0.0, 1e308, -1e308, float("nan"), float("inf"), 2**31, 2**63, 10**30),
    *("", " ", "a", "0", "-1", "1e9", "NaN", "\x00", "\u202eabc", "x" * 5000, "../../etc/passwd", "/etc/passwd"),
    *([], [[]], [None], [0], [-1], [1, [2]], {}, {"a": 1}, {"": None}, [10**12], [2**62, 4], ["float32"], "os.system"),
]
_FIELDS = (
    b"|-1|0|NaN|inf|1e308|1e3|99999999999999999999|9223372036854775808|0x10|1.5|1_000|6|77|+3|1,5|../../x|7 7".split(
        b"|"
    )
)


def change_value(value: Any, draws: random.Random) -> tuple[Any, str]:
    """One structural change of a JSON value."""
    value = json.loads(json.dumps(value))
    places = [place for place in _places(value) if place]
    place = draws.choice(places)
    if draws.random() < 0.5:  # near the top
        place = place[: draws.randint(1, len(place))]
    parent, other = _at(value, place[:-1]), json.loads(json.dumps(_at(value, draws.choice(places))))
    key, old = place[-1], parent[place[-1]]
    how = draws.choice(["odd", "odd", "odd", "delete", "rename", "twice", "wrap", "swap", "nudge", "deep"])
    if how == "delete":
        del parent[key]
    elif how == "rename" and isinstance(parent, dict):
        parent[draws.choice(["x", "", f"{key}s", "__class__"])] = parent.pop(key)
    elif how == "twice" and isinstance(parent, list):
        parent.insert(int(key), old)
    else:
        parent[key] = _other_value(old, other, how, draws)
    return value, f"{how} {'/'.join(map(str, place))[:80]}"


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        value = value[step]
    return value


def _other_value(old: Any, other: Any, how: str, draws: random.Random) -> Any:
    if how == "wrap":
        return draws.choice([[old], {"x": old}])
    if how == "swap":
        return other
    if how == "nudge" and type(old) in (int, float):
        return draws.choice([old + 1, old - 1, -old, old * 1000, old * 1e9, old / 3])
    if how == "deep":
        for _ in range(draws.choice([10, 100, 300])):
            old = [old]
        return old
    return draws.choice(_ODD)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from _places(part, (*place, key))


def _flip(data: bytearray, at: int, length: int, draws: random.Random) -> None:
    data[at] ^= 1 << draws.randrange(8)


def _flip_some(data: bytearray, at: int, length: int, draws: random.Random) -> None:
    for _ in range(draws.randint(2, 40)):
        data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)


def _cut_short(data: bytearray, at: int, length: int, draws: random.Random) -> None:
    del data[at:]


def _cut(data: bytearray, at: int, length: int, draws: random.Random) -> None:
    del data[at : at + length]


def _repeat(data: bytearray, at: int, length: int, draws: random.Random) -> None:
    data[at:at] = data[at : at + length]


def _insert(data: bytearray, at: int, length: int, draws: random.Random) -> None:
    data[at:at] = draws.randbytes(draws.randint(1, 20))


def _zero(data: bytearray, at: int, length: int, draws: random.Random) -> None:
    data[at : at + length] = bytes(len(data[at : at + length]))


def _append(data: bytearray, at: int, length: int, draws: random.Random) -> None:
    data += draws.randbytes(draws.randint(1, 30))


_BYTE_CHANGES = [_flip, _flip_some, _cut_short, _cut, _repeat, _insert, _zero, _append]


def change_bytes(content: bytes, draws: random.Random, *, text: bool = False) -> Changed:
    """One raw change; of a text also of a line or a field."""
    if not content:
        return draws.randbytes(10), "bytes into an empty file"
    if text and draws.random() < 0.6:
        return _change_line(content, draws)
    data = bytearray(content)
    at, length = draws.randrange(len(data)), draws.randint(1, max(1, len(data) // 4))
    change = draws.choice(_BYTE_CHANGES)
    change(data, at, length, draws)
    return bytes(data), f"{change.__name__[1:]} at {at}"


def _change_line(content: bytes, draws: random.Random) -> Changed:
    lines = content.split(b"\n")
    number = draws.randrange(len(lines))
    how = draws.choice(["delete", "twice", "swap", "blank", "quote", "field", "field", "field", "more", "less"])
    if how == "delete":
        del lines[number]
    elif how == "twice":
        lines[number:number] = [lines[number]] * draws.choice([1, 3])
    elif how == "swap":
        other = draws.randrange(len(lines))
        lines[number], lines[other] = lines[other], lines[number]
    elif how == "blank":
        lines.insert(number, draws.choice([b"", b" ", b"\t", b"#"]))
    elif how == "quote":
        at = draws.randint(0, len(lines[number]))
        lines[number] = lines[number][:at] + b'"' + lines[number][at:]
    else:
        separator = next((one for one in (b"\t", b"::", b",", b" ") if one in lines[number]), b" ")
        fields = lines[number].split(separator)
        place = draws.randrange(len(fields))
        if how == "more":
            fields.insert(place, draws.choice([b"1", b"x", b""]))
        elif how == "less":
            del fields[place]
        else:
            fields[place] = draws.choice(_FIELDS)
        lines[number] = separator.join(fields)
    return b"\n".join(lines), f"{how} in line {number + 1}"


_TENSOR_CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "NaN": lambda t: t.float() * float("nan"),
    "infinite": lambda t: t.float() + float("inf"),
    "one NaN": lambda t: t.float().flatten().index_fill(0, torch.tensor([0]), float("nan")).reshape(t.shape),
    "large": lambda t: t * (1e30 if t.is_floating_point() else 2**40),
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
_EXTRA = [
    "served",
    "offsets",
    "lists",
    "features",
    "model/x",
    "client/y",
    "z",
    "images",
    "labels",
    "rows/x",
    "deltas/x",
]


def change_shard(content: bytes, draws: random.Random) -> Changed:
    """One change of a safetensors file: of a tensor, of the names, of the header, or raw."""
    how = draws.choice(["tensor"] * 6 + ["drop", "rename", "extra", "swap", "header", "raw", "length"])
    if how in ("raw", "length", "header"):
        return _change_header(content, draws, how)
    tensors = load(content)
    key, other = draws.choice(sorted(tensors)), draws.choice(sorted(tensors))
    said = f"{how} {key}"
    try:
        if how == "tensor":
            name = draws.choice(sorted(_TENSOR_CHANGES))
            tensors[key], said = _TENSOR_CHANGES[name](tensors[key]), f"{key} {name}"
        elif how == "drop":
            del tensors[key]
        elif how == "rename":
            tensors[draws.choice([f"{key}x", key.split("/")[-1], "", f"model/{key}", f"client/{key}"])] = tensors.pop(
                key
            )
        elif how == "extra":
            tensors[draws.choice(_EXTRA)] = draws.choice([torch.zeros(3), torch.zeros(0), torch.tensor(1)])
        else:
            tensors[key], tensors[other] = tensors[other], tensors[key]
        return save({name: value.clone().contiguous() for name, value in tensors.items()}), said
    except (RuntimeError, IndexError, TypeError, ValueError):  # a change that this tensor does not have
        return content[:-1], "cut by a byte"


def _change_header(content: bytes, draws: random.Random, how: str) -> Changed:
    if how == "raw":
        changed, said = change_bytes(content, draws)
        return changed, f"raw {said}"
    (size,) = struct.unpack("<Q", content[:8])
    if how == "length":
        length = draws.choice([0, 1, size - 1, size + 1, 2**31, 2**62, 2**64 - 1])
        return struct.pack("<Q", length) + content[8:], f"header of {length} bytes"
    header, said = change_value(json.loads(content[8 : 8 + size]), draws)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :], f"header: {said}"


_ARRAY_CHANGES: dict[str, Callable[[Any], Any]] = {
    "NaN": lambda a: a * np.float32("nan"),
    "infinite": lambda a: a + np.float32("inf"),
    "double": lambda a: a.astype(np.float64),
    "int8": lambda a: a.astype(np.int8),
    "unsigned": lambda a: a.astype(np.uint64),
    "complex": lambda a: a.astype(np.complex64),
    "bool": lambda a: a.astype(bool),
    "shorter": lambda a: a[:-1],
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
_SHAPES = [
    "(1000000000000,)",
    "(-1,)",
    "5",
    "('a',)",
    "(1" * 500 + ")" * 500,
    "(3000000000,)",
    "()",
    "[1]",
    "(1.5,)",
    "(True,)",
]
_TYPES = ["'<f4'", "'|O'", "'>f4'", "'|S99999999'", "'<U1000000000'", "[('a','<f4')]", "__import__('os')"]


def change_npz(content: bytes, draws: random.Random) -> Changed:
    """One change of an archive of arrays: of an array, of the names, of a header, or raw, also compressed."""
    with np.load(io.BytesIO(content)) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    key = draws.choice(sorted(arrays))
    how = draws.choice(["array"] * 4 + ["drop", "rename", "extra", "order", "header", "header", "raw", "packed"])
    said = f"{how} {key}"
    if how == "array":
        name = draws.choice(sorted(_ARRAY_CHANGES))
        said = f"{key} {name}"
        with np.errstate(all="ignore"):
            arrays[key] = _ARRAY_CHANGES[name](arrays[key])
    elif how == "drop":
        del arrays[key]
    elif how == "rename":
        arrays[draws.choice(["x", "../x", "/abs", key.upper()])] = arrays.pop(key)
    elif how == "extra":
        arrays[draws.choice(["served", "x"])] = np.arange(3)
    elif how == "order":
        arrays = dict(reversed(arrays.items()))
    elif how == "header":
        return _with_header(arrays, key, draws.choice(_SHAPES), draws.choice(_TYPES)), said
    written = io.BytesIO()
    (np.savez_compressed if how == "packed" else np.savez)(written, **arrays)
    if how in ("raw", "packed"):
        changed, of_bytes = change_bytes(written.getvalue(), draws)
        return changed, f"{how} {of_bytes}"
    return written.getvalue(), said


def _with_header(arrays: dict[str, Any], key: str, shape: str, kind: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, value)
            header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
            false = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 100
            archive.writestr(f"{name}.npy", false if name == key else member.getvalue())
    return file.getvalue()
