"""Columns brought to mean 0 and standard deviation 1, by the statistics of one set of rows."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
_ROWS = 2**14


@dataclass(frozen=True)
class ColumnStatistics:
    """What is needed to standardise.

    Attributes:
        mean: ``(F,)`` float64.
        std: ``(F,)`` float64, over all rows; exactly 0 where all rows are equal.
    """

    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]


def column_statistics(features: Floats) -> ColumnStatistics:
    """Mean and standard deviation of the columns of ``(M, F)``, in double precision without a copy of all rows."""
    mean = features.mean(axis=0, dtype=np.float64)
    squares = np.zeros_like(mean)
    for begin in range(0, len(features), _ROWS):
        squares += ((features[begin : begin + _ROWS] - mean) ** 2).sum(axis=0)
    # By comparison, not by the sum: rounding of the mean leaves a constant column a spread of its own.
    constant = features.min(axis=0) == features.max(axis=0)
    return ColumnStatistics(mean, np.where(constant, 0.0, np.sqrt(squares / len(features))))


def standardise_(features: Floats, statistics: ColumnStatistics) -> Floats:
    """Standardises ``(M, F)`` in place; a column that is constant in the statistics becomes 0."""
    scale = np.divide(1.0, statistics.std, out=np.zeros_like(statistics.std), where=statistics.std > 0)
    for begin in range(0, len(features), _ROWS):
        rows = features[begin : begin + _ROWS]
        rows[:] = (rows - statistics.mean) * scale
    return features
