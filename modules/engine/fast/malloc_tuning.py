"""Keeps freed memory in the process: a step of local training frees what the next one needs."""

import ctypes
import functools

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""glibc's names for them in ``mallopt(3)``."""
_KEEP = 2**30
_LARGEST_ON_HEAP = 2**25
"""The most that glibc accepts."""


@functools.cache
def keep_freed_memory() -> bool:
    """Tells the C library to hold on to up to 1 GiB of freed memory.

    It gives freed blocks back to the system at once otherwise, and every page of a fresh one costs a fault.

    Returns:
        Whether it agreed; other C libraries than glibc are left alone.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_ON_HEAP) and mallopt(_TRIM_THRESHOLD, _KEEP))
