"""MSLR-WEB10K and MSLR-WEB30K (Qin and Liu 2013): queries and pages of a web search engine."""

import functools
from pathlib import Path
from typing import Any, Literal

from datamodules.ranking.base import RankingDataModule
from datamodules.ranking.letor_folds import check_fold, fold_file
from datamodules.ranking.letor_parser import Queries, read_queries
from datamodules.ranking.standardise import ColumnStatistics, column_statistics, standardise_
from datamodules.recommendation.ratings_csv import sha256_of

FEATURES, GRADES = 136, 5
_PAGE = "https://www.microsoft.com/en-us/research/project/mslr/"


class MSLR(RankingDataModule):
    """Groups of MSLR's queries as clients: 136 features, grades 0 to 4.

    The features have mean 0 and standard deviation 1 over the training documents (RAIFLE, section V.B.2); the test
    documents are brought to the same scale, by the training statistics. A feature that is constant there is 0.
    Reads ``root/NAME/FoldN/train.txt`` and ``test.txt``, which are fetched by hand. The other arguments are those of
    `RankingDataModule`.

    Args:
        name: which of the sets; also the name of its folder under `root`.
        fold: which of its five folds (RAIFLE, section V.B.2: 1).
    """

    folders = ("MSLR-WEB10K", "MSLR-WEB30K")

    def __init__(
        self, *, name: Literal["MSLR-WEB10K", "MSLR-WEB30K"] = "MSLR-WEB10K", fold: int = 1, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.name: Literal["MSLR-WEB10K", "MSLR-WEB30K"] = name
        self.fold = check_fold(fold)

    @classmethod
    def folder_arguments(cls, folder: str) -> dict[str, Any]:
        return {"name": folder}

    @property
    def num_features(self) -> int:
        """136."""
        return FEATURES

    @property
    def num_grades(self) -> int:
        """5."""
        return GRADES

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        """Name of the folder and hash of the training file."""
        return {"name": self.name, "sha256": sha256_of(self._path("train"))}

    def read_train(self) -> Queries:
        return self._standardised[0]

    def read_test(self) -> Queries:
        queries = self._read("test")
        standardise_(queries.features, self._standardised[1])
        return queries

    @functools.cached_property
    def _standardised(self) -> tuple[Queries, ColumnStatistics]:
        # In place: a copy of the features would be the largest thing in memory.
        queries = self._read("train")
        statistics = column_statistics(queries.features)
        standardise_(queries.features, statistics)
        return queries, statistics

    def _path(self, part: Literal["train", "test"]) -> Path:
        return fold_file(self.data_root() / self.name, self.fold, part)

    def _read(self, part: Literal["train", "test"]) -> Queries:
        return read_queries(self._path(part), num_features=FEATURES, max_grade=GRADES - 1, page=_PAGE)
