"""The bound of an attack's memory."""

import os

from fedleak.core.memory import gibibytes, memory_bound


def test_the_bound_is_half_of_the_machine() -> None:
    assert memory_bound() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def test_sizes_are_written_for_a_person() -> None:
    assert [gibibytes(size * 2**30) for size in (0.04, 1.5, 2000)] == ["0.0 GiB", "1.5 GiB", "2,000 GiB"]
