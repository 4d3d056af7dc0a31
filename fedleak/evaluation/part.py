"""Part of some work that one of several machines does, such as the tasks of an array of jobs."""

import re

from fedleak.core.errors import require


def place_of(part: str | None) -> tuple[int, int]:
    """I and N of a part ``I/N`` with I from 0 to N - 1; 0 and 1 for None.

    >>> place_of("1/2"), place_of(None)
    ((1, 2), (0, 1))

    Raises:
        InputError: the part has another form.
    """
    numbers = re.fullmatch(r"(\d+)/(\d+)", part or "0/1")
    # 0 of 0 is no part.
    first, count = 0, 0
    if numbers is not None:
        first = int(numbers[1])
        count = int(numbers[2])
    require(first < count, "--part I/N with I from 0 to N - 1", part, "The two halves are 0/2 and 1/2.")
    return first, count
