"""Pieces of a job, measured in turns within one run."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from tqdm import tqdm


@dataclass(frozen=True)
class Measure:
    """One piece of a job.

    Attributes:
        job: the job.
        what: the piece.
        value: seconds, or another unit.
        unit: the unit.
        spread: the least and the most, where there were several.
        share_of_peak: share of the machine's measured matrix-multiply peak, where the job's operations are counted.
    """

    job: str
    what: str
    value: float
    unit: str = "s"
    spread: tuple[float, float] | None = None
    share_of_peak: float | None = None


def interleaved(pieces: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each piece, in turns, so that other load on the machine affects all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in pieces}
    for turn in tqdm(range(repeats + 1), desc=" / ".join(pieces), unit="turn"):
        for name, piece in pieces.items():
            start = time.perf_counter()
            piece()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
