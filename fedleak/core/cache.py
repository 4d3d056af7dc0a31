"""The user's cache of what can be made again."""

import os
from pathlib import Path

CACHE_VARIABLE = "FEDLEAK_CACHE"


def cache_folder() -> Path:
    """Folder of the cache: the environment variable ``FEDLEAK_CACHE``, by default ``~/.cache/fedleak``.

    Raises:
        RuntimeError: there is no home folder.
    """
    folder = os.environ.get(CACHE_VARIABLE)
    if folder:
        return Path(folder)
    return Path.home() / ".cache" / "fedleak"
