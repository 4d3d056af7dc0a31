"""Cache of arrays that take long to read, under the hash of what they were read from."""

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from datamodules.io.array_files import DAMAGED, check_npz
from datamodules.io.files import regular_file, unpacked_limit
from protocol.cache import cache_folder
from protocol.errors import InputError

_logger = logging.getLogger(__name__)


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
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            path = Path(unfinished) / "arrays.npz"
            np.savez(path, **arrays)  # type: ignore[arg-type]
            path.replace(folder / f"{key}.npz")
    except (OSError, RuntimeError) as error:
        _logger.info("Nothing is cached: %s", error)
