"""LETOR 4.0: MQ2007 and MQ2008, queries of TREC's million query tracks."""

import functools
from pathlib import Path
from typing import Any, ClassVar, Literal

from fedleak.core.errors import require
from fedleak.core.io.files import sha256_of
from fedleak.datamodules.ranking.base import RankingDataModule
from fedleak.datamodules.ranking.letor_parser import Queries, read_queries

FOLDS = 5


class FoldedRanking(RankingDataModule):
    """Queries in LETOR's layout, ``root/NAME/FoldN/train.txt`` and ``test.txt``.

    Args:
        name: the data set; also the name of its folder under `root`.
        fold: number of the fold, from 1 to 5 (RAIFLE, section V.B.2: 1).
    """

    name: str
    features: ClassVar[int]
    grades: ClassVar[int]
    page: ClassVar[str]

    def __init__(self, *, name: str, fold: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require(1 <= fold <= FOLDS, f"a fold from 1 to {FOLDS}", fold, "The papers use fold 1.")
        self.name, self.fold = name, fold

    @classmethod
    def folder_arguments(cls, folder: str) -> dict[str, Any]:
        return {"name": folder}

    @property
    def num_features(self) -> int:
        return self.features

    @property
    def num_grades(self) -> int:
        return self.grades

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        return {"name": self.name, "sha256": sha256_of(self._path("train"))}

    def read_train(self) -> Queries:
        return self._read("train")

    def read_test(self) -> Queries:
        return self._read("test")

    def _path(self, part: Literal["train", "test"]) -> Path:
        return self.data_root() / self.name / f"Fold{self.fold}" / f"{part}.txt"

    def _read(self, part: Literal["train", "test"]) -> Queries:
        return read_queries(self._path(part), num_features=self.features, max_grade=self.grades - 1, page=self.page)


class LETOR(FoldedRanking):
    """LETOR 4.0, 46 features as published and grades 0 to 2.

    Size: MQ2007 has 1,692 queries with 69,623 documents, MQ2008 784 with 15,211.

    Files: ``root/NAME/FoldN/train.txt`` and ``test.txt``, from
    https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval/letor-4-0/.

    References:
        [Qin13].
    """

    folders = ("MQ2007", "MQ2008")
    features = 46
    grades = 3
    page = "https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval/letor-4-0/"

    def __init__(self, *, name: Literal["MQ2007", "MQ2008"] = "MQ2008", fold: int = 1, **kwargs: Any) -> None:
        super().__init__(name=name, fold=fold, **kwargs)
