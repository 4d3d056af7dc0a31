"""Folder that holds the data sets."""

import os
from pathlib import Path

from fedleak.core.errors import InputError, require

DATA_VARIABLE = "FEDLEAK_DATA"


def data_root(root: str | None) -> Path:
    """Folder that holds the data sets: the argument, by default the value of ``FEDLEAK_DATA``."""
    folder = root or os.environ.get(DATA_VARIABLE)
    way_out = f"Give --data.root DIR or set {DATA_VARIABLE}=DIR."
    if not folder:
        raise InputError(expected="a data folder", found="none", way_out=way_out)
    require(Path(folder).is_dir(), "a data folder", f"no folder at {folder}", way_out)
    return Path(folder)
