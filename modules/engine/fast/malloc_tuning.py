"""Allocator settings that keep freed memory in the process for the next step of local training."""

import ctypes
import functools

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameter numbers of ``mallopt(3)`` in glibc."""
_KEEP = 2**30
_LARGEST_ON_HEAP = 2**25
"""Largest value that glibc accepts."""


@functools.cache
def keep_freed_memory() -> bool:
    """Makes glibc keep up to 1 GiB of freed memory, because every page of a new block costs a page fault.

    Returns:
        Whether the settings were applied; False with another C library.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_ON_HEAP) and mallopt(_TRIM_THRESHOLD, _KEEP))
