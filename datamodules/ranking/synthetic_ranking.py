"""A synthetic ranking data set with the shape of MSLR or LETOR; results on it say nothing about real data."""

import functools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from fedleak.core.errors import require
from fedleak.core.io.files import sha256_of_arrays
from fedleak.core.ranges import PositiveInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.datamodules.ranking.base import RankingDataModule
from fedleak.datamodules.ranking.letor_parser import Queries


@dataclass(frozen=True)
class _Shape:
    num_features: int
    below: tuple[float, ...]
    """Share of the documents below each grade, from 1."""


_SHAPES = {"mslr": _Shape(136, (0.52, 0.84, 0.97, 0.99)), "letor": _Shape(46, (0.80, 0.93))}
_NOISE = 0.5
"""Standard deviation of the noise on a score, in those of the scores."""


class SyntheticRanking(RankingDataModule):
    """Documents whose grade is a linear function of their features plus noise. Needs no files.

    Args:
        shape: ``mslr`` for 136 standard normal features and 5 grades, ``letor`` for 46 features in [0, 1) and 3.
        queries: number of training queries (MSLR-WEB10K, fold 1: 6,000).
        test_queries: number of test queries (MSLR-WEB10K, fold 1: 2,000).
        fewest_documents: smallest number of documents of a query.
        most_documents: largest number; all between are equally likely (MSLR-WEB10K: 120 on average).
    """

    folders = ("synthetic-mslr", "synthetic-letor")

    def __init__(
        self,
        *,
        shape: Literal["mslr", "letor"] = "mslr",
        queries: PositiveInt = 300,
        test_queries: PositiveInt = 100,
        fewest_documents: PositiveInt = 8,
        most_documents: PositiveInt = 200,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require(
            1 <= fewest_documents <= most_documents,
            "1 <= fewest_documents <= most_documents",
            f"{fewest_documents}, {most_documents}",
            "Give a range of numbers of documents.",
        )
        require(
            min(queries, test_queries) >= 1,
            "queries and test_queries of at least 1",
            f"{queries}, {test_queries}",
            "Give more queries.",
        )
        self.shape = shape
        self.queries = queries
        self.test_queries = test_queries
        self.fewest_documents = fewest_documents
        self.most_documents = most_documents

    @classmethod
    def folder_arguments(cls, folder: str) -> dict[str, Any]:
        return {"shape": folder.removeprefix("synthetic-")}

    @property
    def num_features(self) -> int:
        return _SHAPES[self.shape].num_features

    @property
    def num_grades(self) -> int:
        return len(_SHAPES[self.shape].below) + 1

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        train = self._parts[0]
        digest = sha256_of_arrays(train.features, train.grades, train.offsets)
        return {"name": f"synthetic-{self.shape}", "sha256": digest}

    def read_train(self) -> Queries:
        return self._parts[0]

    def read_test(self) -> Queries:
        return self._parts[1]

    @functools.cached_property
    def _parts(self) -> tuple[Queries, Queries]:
        """Training and test queries with the same relation between features and grades."""
        generator = generator_for(self.seed, "synthetic ranking", PERSISTENT)
        num_queries = self.queries + self.test_queries
        lengths = torch.randint(self.fewest_documents, self.most_documents + 1, (num_queries,), generator=generator)
        # MSLR's features are standardised, LETOR's lie between 0 and 1.
        draw = torch.randn if self.shape == "mslr" else torch.rand
        features = draw(int(lengths.sum()), self.num_features, generator=generator)
        weights = torch.randn(self.num_features, generator=generator)
        scores = features @ weights
        scores += _NOISE * scores.std() * torch.randn(len(scores), generator=generator)
        # Grades are cut at the quantiles of the scores that the data set has.
        # numpy's quantile: torch's refuses more than 16 million values.
        quantiles = np.quantile(scores.numpy(), _SHAPES[self.shape].below)
        thresholds = torch.from_numpy(quantiles).to(scores.dtype)
        grades = torch.bucketize(scores, thresholds, right=True)
        offsets = np.concatenate([[0], lengths.cumsum(0).numpy()])
        queries = Queries(features.numpy(), grades.numpy(), offsets)
        return _between(queries, 0, self.queries), _between(queries, self.queries, num_queries)


def _between(queries: Queries, begin: int, end: int) -> Queries:
    offsets = queries.offsets[begin : end + 1]
    rows = slice(offsets[0], offsets[-1])
    return Queries(queries.features[rows], queries.grades[rows], offsets - offsets[0])
