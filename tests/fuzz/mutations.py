"""One change of bytes, of a JSON value, of a tensor, or of an archive; what is drawn is said in a few words."""

import io
import json
import random
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from tests.fuzz.damages import ARRAYS, SHAPES, TENSORS, TEXTS, TYPES, VALUES, archive, npy

Changed = tuple[bytes, str]


def change_value(value: Any, draws: random.Random) -> tuple[Any, str]:
    """One structural change of a JSON value."""
    value = json.loads(json.dumps(value, default=str))  # a date of YAML as its text
    places = [place for place in places_of(value) if place]
    place = draws.choice(places)
    if draws.random() < 0.5:  # near the top
        place = place[: draws.randint(1, len(place))]
    parent, other = at(value, place[:-1]), json.loads(json.dumps(at(value, draws.choice(places))))
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


def at(value: Any, place: tuple[Any, ...]) -> Any:
    """The part of a JSON value at a place."""
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
    return draws.choice(VALUES)


def places_of(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of a JSON value and of all its parts, as keys and numbers from the top."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places_of(part, (*place, key))


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
            fields[place] = draws.choice(TEXTS.split(b"|"))
        lines[number] = separator.join(fields)
    return b"\n".join(lines), f"{how} in line {number + 1}"


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
            name = draws.choice(sorted(TENSORS))
            tensors[key], said = TENSORS[name](tensors[key]), f"{key} {name}"
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


def change_npz(content: bytes, draws: random.Random) -> Changed:
    """One change of an archive of arrays: of an array, of the names, of a header, or raw, also compressed."""
    with np.load(io.BytesIO(content)) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    key = draws.choice(sorted(arrays))
    how = draws.choice(["array"] * 4 + ["drop", "rename", "extra", "order", "header", "header", "raw", "packed"])
    said = f"{how} {key}"
    if how == "array":
        name = draws.choice(sorted(ARRAYS))
        said = f"{key} {name}"
        with np.errstate(all="ignore"):
            arrays[key] = ARRAYS[name](arrays[key])
    elif how == "drop":
        del arrays[key]
    elif how == "rename":
        arrays[draws.choice(["x", "../x", "/abs", key.upper()])] = arrays.pop(key)
    elif how == "extra":
        arrays[draws.choice(["served", "x"])] = np.arange(3)
    elif how == "order":
        arrays = dict(reversed(arrays.items()))
    elif how == "header":
        return _with_header(arrays, key, draws.choice(SHAPES), draws.choice(TYPES)), said
    written = io.BytesIO()
    (np.savez_compressed if how == "packed" else np.savez)(written, **arrays)
    if how in ("raw", "packed"):
        changed, of_bytes = change_bytes(written.getvalue(), draws)
        return changed, f"{how} {of_bytes}"
    return written.getvalue(), said


def _with_header(arrays: dict[str, Any], key: str, shape: str, kind: str) -> bytes:
    members = {}
    for name, value in arrays.items():
        member = io.BytesIO()
        np.lib.format.write_array(member, value)
        members[f"{name}.npy"] = npy(shape, kind) if name == key else member.getvalue()
    return archive(members)
