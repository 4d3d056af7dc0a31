"""Number of processes, parts of some work for several machines, and work in several processes."""

import re
from collections.abc import Callable, Iterator, Sequence

from fedleak.core.errors import require
from fedleak.evaluation.engines.engine import Part, Result
from fedleak.evaluation.engines.engine import cores as default_jobs
from fedleak.evaluation.engines.processes import Processes

__all__ = ["default_jobs", "in_processes", "place_of"]


def place_of(part: str | None) -> tuple[int, int]:
    """I and N of a part ``I/N`` with I from 0 to N - 1; 0 and 1 for None.

    Raises:
        InputError: the part has another form.
    """
    numbers = re.fullmatch(r"(\d+)/(\d+)", part or "0/1")
    first, count = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    require(first < count, "--part I/N with I from 0 to N - 1", part, "The two halves are 0/2 and 1/2.")
    return first, count


def in_processes(function: Callable[[Part], Result], work: Sequence[Part], *, jobs: int) -> Iterator[Result]:
    """Yields what a function returns for each part of some work, in order, by `Processes`."""
    return Processes(jobs=jobs).run(function, work)
