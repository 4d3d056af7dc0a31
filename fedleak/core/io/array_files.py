"""Files of arrays, which can neither hold code nor unpack to more than memory holds, and a cache of such files."""

import logging
import lzma
import math
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from fedleak.core.cache import cache_folder
from fedleak.core.errors import InputError
from fedleak.core.io.files import regular_file, unpacked_limit

DAMAGED = (
    OSError,
    ValueError,
    TypeError,
    EOFError,
    RuntimeError,
    SyntaxError,
    KeyError,
    OverflowError,
    MemoryError,
    AttributeError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tokenize.TokenError,
)
"""What numpy and zipfile raise on damaged, encrypted or foreign archives, their compression and their headers."""
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_logger = logging.getLogger(__name__)


def read_arrays(path: Path) -> dict[str, Tensor]:
    """All arrays of a file by name, in the file's order.

    Args:
        path: ``.npz`` (read without pickle) or ``.safetensors`` (which does not keep the order of names: sorted).

    Raises:
        InputError: it is missing, of another kind, damaged, holds objects, or unpacks to far more than its size.
    """
    size = regular_file(path, way_out="Correct the manifest, or put the file there.")
    try:
        if path.suffix == ".safetensors":
            return dict(load(path.read_bytes()))
        if path.suffix == ".npz":
            # Before memory is allocated: a small file may claim to hold any number of zeros.
            check_npz(path, unpacked_limit(size))
            with np.load(path, allow_pickle=False) as file:
                return {name: torch.from_numpy(np.asarray(file[name], order="C")) for name in file.files}
    except (*DAMAGED, SafetensorError) as error:
        raise InputError(
            expected=f"arrays of numbers in {path.name}",
            found=f"{error} at {path}",
            way_out="Write it with numpy.savez or safetensors; objects are never opened.",
        ) from None
    raise InputError(
        expected="a file ending in .npz or .safetensors", found=str(path), way_out="Convert it, e.g. with numpy.savez."
    )


def check_npz(path: Path, most: int) -> None:
    """Checks the headers of an archive before memory is allocated for its arrays.

    Raises:
        ValueError: an array is too large, larger than its member, of objects, or there twice.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len({member.filename for member in members}) < len(members):
            raise ValueError("an array of the same name twice")
        # The directory of the archive says how much each member unpacks to.
        if sum(member.file_size for member in members) > most:
            raise ValueError(f"arrays of more than {most} bytes, packed into {path.stat().st_size}")
        for member in members:
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                shape, _, dtype = _HEADERS[version](file)
            # numpy allocates what the header says, before it finds that the member holds less. Objects are pickles.
            is_larger = math.prod(shape) * dtype.itemsize > member.file_size
            if dtype.hasobject or is_larger or min(shape, default=0) < 0:
                raise ValueError(f"{member.filename[:60]!r} with a header of another size than its numbers")


def load_arrays(key: str) -> dict[str, npt.NDArray[Any]] | None:
    """The arrays stored under `key`; None if there are none or they are damaged (zip files have checksums)."""
    try:
        path = cache_folder() / f"{key}.npz"
        if not path.exists():
            return None
        check_npz(path, unpacked_limit(regular_file(path)))
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (InputError, *DAMAGED) as error:
        _logger.info("The cache of %s cannot be read and is made again: %s", key, error)
        return None


def store_arrays(key: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Stores arrays under `key` atomically; does nothing if the folder is not writable."""
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        # Written elsewhere in the same folder, and renamed: a reader sees no part of a file.
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            path = Path(unfinished) / "arrays.npz"
            np.savez(path, **arrays)  # type: ignore[arg-type]
            path.replace(folder / f"{key}.npz")
    except (OSError, RuntimeError) as error:
        _logger.info("Nothing is cached: %s", error)
