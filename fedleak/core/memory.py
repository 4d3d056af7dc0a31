"""Memory that an audit may use at a time."""

import os

_SHARE = 0.5
"""Share of the machine's memory that what one attack reads may have."""


def memory_bound() -> int:
    """Bytes that one attack may have in memory at a time: half of the machine's memory."""
    return int(_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def gibibytes(size: float) -> str:
    """A number of bytes for a person.

    >>> gibibytes(3.1 * 2**30), gibibytes(40 * 2**40)
    ('3.1 GiB', '40,960 GiB')
    """
    gib = size / 2**30
    if gib < 100:
        return f"{gib:,.1f} GiB"
    return f"{gib:,.0f} GiB"
