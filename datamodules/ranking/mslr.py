"""MSLR-WEB10K and MSLR-WEB30K: queries and pages of a web search engine, with standardised features."""

import functools
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedleak.datamodules.ranking.letor import FoldedRanking
from fedleak.datamodules.ranking.letor_parser import Floats, Queries

_ROWS = 2**14
"""Rows that are standardised at a time: 18 MB in double precision."""


class MSLR(FoldedRanking):
    """MSLR, 136 features and grades 0 to 4.

    Size: 10,000 queries with 1.2 million documents, or 31,531 with 3.8 million. The features have mean 0 and standard
    deviation 1 over the training documents (RAIFLE, section V.B.2), whose statistics also scale the test documents; a
    feature that is constant there becomes 0.

    Files: ``root/NAME/FoldN/train.txt`` and ``test.txt``, from https://www.microsoft.com/en-us/research/project/mslr/.

    References:
        [Qin13].
    """

    folders = ("MSLR-WEB10K", "MSLR-WEB30K")
    features = 136
    grades = 5
    page = "https://www.microsoft.com/en-us/research/project/mslr/"

    def __init__(
        self, *, name: Literal["MSLR-WEB10K", "MSLR-WEB30K"] = "MSLR-WEB10K", fold: int = 1, **kwargs: Any
    ) -> None:
        super().__init__(name=name, fold=fold, **kwargs)

    def read_train(self) -> Queries:
        return self._standardised[0]

    def read_test(self) -> Queries:
        queries = self._read("test")
        standardise_(queries.features, self._standardised[1])
        return queries

    @functools.cached_property
    def _standardised(self) -> tuple[Queries, "ColumnStatistics"]:
        # In place: a copy of the features would be the largest object in memory.
        queries = self._read("train")
        statistics = column_statistics(queries.features)
        standardise_(queries.features, statistics)
        return queries, statistics


class ColumnStatistics(NamedTuple):
    """Means ``(F,)`` and standard deviations ``(F,)`` in float64, the latter exactly 0 where all rows are equal."""

    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]


def column_statistics(features: Floats) -> ColumnStatistics:
    """Mean and standard deviation of the columns of ``(M, F)``, in double precision without a copy of all rows."""
    mean = features.mean(axis=0, dtype=np.float64)
    # The sum of squares over blocks of rows: the differences of all rows would take twice the memory of the features.
    squares = np.zeros_like(mean)
    for begin in range(0, len(features), _ROWS):
        differences = features[begin : begin + _ROWS] - mean
        squares += (differences**2).sum(axis=0)
    # By comparison, not by the sum: rounding of the mean gives a constant column a small spread.
    is_constant = features.min(axis=0) == features.max(axis=0)
    return ColumnStatistics(mean, np.where(is_constant, 0.0, np.sqrt(squares / len(features))))


def standardise_(features: Floats, statistics: ColumnStatistics) -> None:
    """Standardises ``(M, F)`` in place; a column that is constant in the statistics becomes 0."""
    scale = np.divide(1.0, statistics.std, out=np.zeros_like(statistics.std), where=statistics.std > 0)
    for begin in range(0, len(features), _ROWS):
        rows = features[begin : begin + _ROWS]
        rows[:] = (rows - statistics.mean) * scale
