"""LETOR 4.0 (Qin and Liu 2013): MQ2007 and MQ2008, queries of TREC's million query tracks."""

import functools
from pathlib import Path
from typing import Any, Literal

from datamodules.ranking.base import RankingDataModule
from datamodules.ranking.letor_folds import check_fold, fold_file
from datamodules.ranking.letor_parser import Queries, read_queries
from datamodules.recommendation.ratings_csv import sha256_of

FEATURES, GRADES = 46, 3
_PAGE = "https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval/letor-4-0/"


class LETOR(RankingDataModule):
    """Groups of MQ2007's or MQ2008's queries as clients: 46 features as published, grades 0 to 2.

    Reads ``root/NAME/FoldN/train.txt`` and ``test.txt``, which are fetched by hand. The other arguments are those of
    `RankingDataModule`.

    Args:
        name: which of the sets; also the name of its folder under `root`.
        fold: which of its five folds (RAIFLE, section V.B.2: 1).
    """

    folders = ("MQ2007", "MQ2008")

    def __init__(self, *, name: Literal["MQ2007", "MQ2008"] = "MQ2008", fold: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.name: Literal["MQ2007", "MQ2008"] = name
        self.fold = check_fold(fold)

    @classmethod
    def folder_arguments(cls, folder: str) -> dict[str, Any]:
        return {"name": folder}

    @property
    def num_features(self) -> int:
        """46."""
        return FEATURES

    @property
    def num_grades(self) -> int:
        """3."""
        return GRADES

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        """Name of the folder and hash of the training file."""
        return {"name": self.name, "sha256": sha256_of(self._path("train"))}

    def read_train(self) -> Queries:
        return self._read("train")

    def read_test(self) -> Queries:
        return self._read("test")

    def _path(self, part: Literal["train", "test"]) -> Path:
        return fold_file(self.data_root() / self.name, self.fold, part)

    def _read(self, part: Literal["train", "test"]) -> Queries:
        return read_queries(self._path(part), num_features=FEATURES, max_grade=GRADES - 1, page=_PAGE)
