"""Plain files of arrays, .npz or .safetensors; neither can hold code."""

import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from errors import InputError


def read_arrays(path: Path) -> dict[str, Tensor]:
    """All arrays of a file by name, in the file's order.

    Args:
        path: ``.npz`` (read without pickle) or ``.safetensors`` (whose names are kept in no order: they come sorted).

    Raises:
        InputError: there is none, it is of another kind, damaged, or holds objects.
    """
    if not path.is_file():
        raise InputError(expected=f"the file {path.name}", found=f"nothing at {path}", way_out="Mend the manifest.")
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        if path.suffix == ".npz":
            return _npz(path)
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, SafetensorError) as error:
        raise InputError(
            expected=f"arrays of numbers in {path.name}",
            found=f"{error} at {path}",
            way_out="Write it with numpy.savez or safetensors; objects are never opened.",
        ) from None
    raise InputError(
        expected="a file ending in .npz or .safetensors", found=str(path), way_out="Convert it, e.g. by numpy.savez."
    )


def keeps_order(path: Path) -> bool:
    """Whether the order of the names in a file says anything: safetensors sorts them by type and name."""
    return path.suffix == ".npz"


def _npz(path: Path) -> dict[str, Tensor]:
    with np.load(path, allow_pickle=False) as file:
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("a single array without a name")
        return {name: torch.from_numpy(np.asarray(file[name], order="C")) for name in file.files}
