"""The user's cache of what can be made again."""

import os
from pathlib import Path

CACHE_VARIABLE = "FEDLEAK_CACHE"


def cache_folder() -> Path:
    """Folder of the cache: the environment variable ``FEDLEAK_CACHE``, by default ``~/.cache/fedleak``.

    Raises:
        RuntimeError: there is no home folder.
    """
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "fedleak"
