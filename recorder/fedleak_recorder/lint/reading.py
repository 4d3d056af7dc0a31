"""Messages in files of strangers: arrays, JSON, tables, texts, recorded rounds; pickles and archives are not opened.

Nothing in a file is imported, opened or asked for. Sizes are looked up before memory is taken, and what is too large or
damaged is an `InputError`.
"""

import ast
import contextlib
import csv
import io
import math
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedleak_recorder.arrays import BFLOAT16, Array, widened
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.files import regular_file
from fedleak_recorder.lint.any_message import LARGEST_JSON, AnyMessage
from fedleak_recorder.lint.file_kinds import ARCHIVE, PICKLE, kind_of
from fedleak_recorder.plain_values import parse_json

LARGEST = 2**28
"""Bytes of a file, and of its arrays when they are unpacked: 256 MiB."""
_LARGEST_TABLE = 2**23
"""Bytes of a table of text, whose cells take up to 30 times as many."""
_MOST_MEMBERS = 10_000
_MOST_CELLS = 500_000
_LONGEST_HEADER = 2**16
_WAY_OUT = "Give a file of one message: .npz, .npy, .safetensors, .json, .csv or text."
_SMALLER = "Give one client's message in a file."
_UNPACKED = {".pkl", ".pickle", ".pt", ".pth", ".joblib", ".ckpt", ".bin"}
"""Endings of files that pickle writes, whatever they begin with."""
_ARRAYS_OF_ZIP = "arrays of NumPy in an archive"
_SAFETENSORS = {
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    "BOOL": "?",
}
"""Types of numbers of a safetensors file; others stay bytes."""
_ROUND = re.compile(r"\d{6}-\d{4}\.safetensors")
_MOST_CLIENTS = 64
"""Clients of a recorded round that are looked at."""


def read_message(path: Path, *, examples: int | None = None) -> AnyMessage:
    """The message in a file, by what the file is and not by its name alone.

    Args:
        path: of a regular file.
        examples: number of training examples; None for what a part of such a name says.

    Raises:
        InputError: it is missing, larger than 256 MiB, or damaged.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "message.json"
        >>> _ = path.write_text('{"losses": [0.5, 0.25], "num-examples": 2}')
        >>> read_message(path).arrays["losses"].tolist()
        [0.5, 0.25]
    """
    size = regular_file(path, way_out=_WAY_OUT)
    require(size <= LARGEST, f"{path.name} of at most {LARGEST} bytes", f"{size} bytes", _SMALLER)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(expected=f"a readable file {path.name}", found=str(error), way_out=_WAY_OUT) from None
    require(len(content) <= LARGEST, f"{path.name} of at most {LARGEST} bytes", "more", _SMALLER)
    parts = _parts_of(path, content)
    if isinstance(parts, str):
        return AnyMessage(unopened={path.name: parts}, given_examples=examples)
    return AnyMessage.of(parts, examples=examples)


def _parts_of(path: Path, content: bytes) -> dict[str, Any] | str:
    """Parts of a file by name; a text that says what it is if it is not opened."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _npz_parts(path.name, content)
    if content.startswith(b"\x93NUMPY"):
        return {path.stem: _npy_array(path.name, content)}
    kind = kind_of(content)
    if suffix in _UNPACKED or kind in (PICKLE, ARCHIVE):
        # PyTorch's files are archives of a pickle.
        return PICKLE if suffix in _UNPACKED else kind
    if suffix == ".safetensors":
        return _safetensors_parts(path.name, content)
    if suffix == ".json":
        return _json_parts(path, content)
    if suffix in (".csv", ".tsv"):
        return _table_parts(path.name, content, "\t" if suffix == ".tsv" else ",")
    if suffix in (".txt", ".md", ".log", ".yaml", ".yml", ".toml"):
        return {path.name: content[:LARGEST_JSON].decode("utf-8", "replace")}
    # Whatever it is, checks look at its bytes.
    return {path.name: content}


def _damaged(name: str, kind: str, problem: object) -> InputError:
    return InputError(expected=f"{kind} in {name}", found=str(problem)[:200] or "a damaged one", way_out=_WAY_OUT)


def _npz_parts(name: str, content: bytes) -> dict[str, Any]:
    """Arrays of an archive that NumPy wrote, whose members' sizes are summed up before one is unpacked."""
    parts: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            require(len(members) <= _MOST_MEMBERS, f"at most {_MOST_MEMBERS} arrays in {name}", len(members), _SMALLER)
            unpacked = sum(member.file_size for member in members)
            require(unpacked <= LARGEST, f"at most {LARGEST} bytes of arrays in {name}", unpacked, _SMALLER)
            for member in members:
                with archive.open(member) as file:
                    # The size that an archive names may be a lie; not more is read.
                    packed = file.read(member.file_size + 1)
                key = member.filename.removesuffix(".npy")
                parts[key] = _npy_array(f"{member.filename[:80]} of {name}", packed)
    except InputError:
        raise
    # What zipfile raises of damaged archives is of many types, of encrypted members too.
    except Exception as error:
        raise _damaged(name, _ARRAYS_OF_ZIP, f"{type(error).__name__}: {error}") from None
    return parts


def _npy_array(name: str, content: bytes) -> Array | str | bytes:
    """The array of a file of NumPy; its bytes if it holds objects, which would be unpickled."""
    file = io.BytesIO(content)
    shape, fortran, dtype = _npy_header(name, file)
    if dtype.hasobject:
        return content
    count = math.prod(shape)
    rest = len(content) - file.tell()
    fits = count * dtype.itemsize <= rest
    require(fits, f"{count} entries of {dtype} in {name}", f"{rest} bytes", "Write the file anew.")
    if dtype.kind in "SU":
        # Texts are judged as bytes.
        return content[file.tell() :]
    if dtype.kind not in "biufc" or len(shape) > 32:
        return content
    flat = np.frombuffer(content, dtype, count, file.tell())
    native = flat.astype(dtype.newbyteorder("="), copy=False)
    return native.reshape(shape, order="F" if fortran else "C")


def _npy_header(name: str, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array of NumPy, read without evaluating anything."""
    kind = "an array of NumPy"
    beginning = file.read(8)
    require(beginning[:6] == b"\x93NUMPY", f"{kind} in {name}", repr(beginning[:6]), _WAY_OUT)
    width = 2 if beginning[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    require(length <= _LONGEST_HEADER, f"a header of at most {_LONGEST_HEADER} bytes in {name}", length, _WAY_OUT)
    text = file.read(length).decode("latin-1")
    try:
        header = ast.literal_eval(text.strip())
        shape, fortran, description = header["shape"], header["fortran_order"], header["descr"]
        dtype = np.dtype(description)
    except Exception as error:
        raise _damaged(name, kind, f"{type(error).__name__}: {error}") from None
    is_shape = isinstance(shape, tuple) and all(type(side) is int and 0 <= side < 2**48 for side in shape)
    require(is_shape, f"a shape in {name}", repr(shape)[:80], _WAY_OUT)
    return shape, bool(fortran), dtype


def _safetensors_parts(name: str, content: bytes) -> dict[str, Any]:
    """Tensors of a safetensors file by name, and the texts that it holds beside them."""
    kind = "tensors of the safetensors format"
    try:
        (length,) = struct.unpack("<Q", content[:8])
        if length > min(len(content) - 8, LARGEST_JSON):
            raise ValueError(f"a header of {length} bytes")
        header = parse_json(content[8 : 8 + length], where=name)
        parts: dict[str, Any] = {}
        if not isinstance(header, dict):
            raise TypeError("a header that is no mapping")
        for key, entry in header.items():
            if key == "__metadata__":
                parts[key] = entry
                continue
            parts[key] = _tensor(entry, content, 8 + length)
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, struct.error, OverflowError) as error:
        raise _damaged(name, kind, f"{type(error).__name__}: {error}") from None
    return parts


def _tensor(entry: dict[str, Any], content: bytes, start: int) -> Array | bytes:
    """A tensor of a safetensors file, or its bytes if NumPy has no such type.

    Raises:
        ValueError: its size is not that of its shape and type, or it lies outside of the file.
    """
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    is_inside = type(begin) is int and type(end) is int and 0 <= begin <= end <= len(content) - start
    is_shape = all(type(side) is int and 0 <= side < 2**48 for side in shape) and len(shape) <= 32
    if not (is_inside and is_shape):
        raise ValueError("a tensor outside of the file")
    dtype = BFLOAT16 if entry["dtype"] == "BF16" else np.dtype(_SAFETENSORS.get(entry["dtype"], "V1"))
    if dtype.kind == "V" and dtype != BFLOAT16:
        return content[start + begin : start + end]
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise ValueError("a tensor whose size is not that of its shape")
    return widened(np.frombuffer(content, dtype, math.prod(shape), start + begin).reshape(shape))


def _json_parts(path: Path, content: bytes) -> dict[str, Any]:
    """Values of a JSON file."""
    require(len(content) <= LARGEST_JSON, f"JSON of at most {LARGEST_JSON} bytes", f"{len(content)} bytes", _SMALLER)
    try:
        value = parse_json(content, where=path.name)
    except (ValueError, RecursionError) as error:
        raise _damaged(path.name, "JSON", error) from None
    return value if isinstance(value, dict) else {path.stem: value}


def _table_parts(name: str, content: bytes, separator: str) -> dict[str, Any]:
    """Columns of a table: those of numbers together as rows, those of texts each by its name."""
    require(len(content) <= _LARGEST_TABLE, f"a table of at most {_LARGEST_TABLE} bytes", len(content), _SMALLER)
    text = content.decode("utf-8", "replace")
    rows: list[list[str]] = []
    cells = 0
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            cells += len(row)
            require(cells <= _MOST_CELLS, f"at most {_MOST_CELLS} cells in {name}", "more", _SMALLER)
            rows.append(row)
    except csv.Error as error:
        raise _damaged(name, "a table", error) from None
    if len(rows) < 2:
        return {name: text}
    header, *body = rows
    width = len(header)
    body = [row for row in body if len(row) == width]
    parts: dict[str, Any] = {}
    numbers: list[Array] = []
    for position, title in enumerate(header):
        column = [row[position] for row in body]
        values = _numbers(column)
        if values is None:
            parts[f"{position} {title[:80]}"] = column
        else:
            numbers.append(values)
    if numbers:
        parts["rows"] = np.stack(numbers, axis=1)
    return parts


def _numbers(column: list[str]) -> Array | None:
    """Numbers of a column of texts; None if one is none."""
    try:
        values = np.array([float(cell) for cell in column])
    except ValueError:
        return None
    return values if len(values) and np.isfinite(values).all() else None


def recorded_messages(folder: Path) -> Iterator[tuple[str, AnyMessage]]:
    """Messages of the clients of a recording's rounds, with their places.

    Of each round the first 64 clients are looked at.

    Args:
        folder: folder of a recording.

    Raises:
        InputError: a shard is damaged or too large.
    """
    for path in sorted((folder / "rounds").iterdir()):
        if _ROUND.fullmatch(path.name) is None or path.is_symlink():
            continue
        yield from messages_of_shard(path)


def messages_of_shard(path: Path) -> Iterator[tuple[str, AnyMessage]]:
    """Messages of the clients of a recorded round."""
    shard = read_message(path)
    counts = shard.arrays.get("counts")
    require(counts is not None and counts.ndim == 1, f"counts in {path.name}", "none", _WAY_OUT)
    assert counts is not None
    for client in range(min(len(counts), _MOST_CLIENTS)):
        arrays = {}
        for name, value in shard.arrays.items():
            parameter = name.removeprefix("deltas/")
            if parameter != name and value.ndim and len(value) == len(counts):
                arrays[parameter] = value[client]
        # A count of 0 says that it is unknown.
        examples = int(counts[client]) or None
        yield f"{path.stem}, client {client + 1}", AnyMessage.of(arrays, examples=examples)


def is_recording(folder: Path) -> bool:
    """Whether a folder is one of a recording."""
    with contextlib.suppress(OSError):
        return (folder / "manifest.json").is_file() and (folder / "rounds").is_dir()
    return False
