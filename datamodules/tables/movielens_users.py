"""The users of MovieLens-100K: age and occupation, and their gender."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fedleak.datamodules.recommendation.movielens import OCCUPATIONS
from fedleak.datamodules.tables.base import TableDataModule
from fedleak.datamodules.tables.csv_table import read_schema
from fedleak.datamodules.tables.schema import Column

_PAGE = "https://grouplens.org/datasets/movielens/100k/"


class MovieLensUsers(TableDataModule):
    """The 943 users of MovieLens-100K: age and occupation; the class is the gender.

    The zip code, which differs between most users, is left out: few networks would be given it.

    Files: ``root/ml-100k/u.user`` from https://grouplens.org/datasets/movielens/100k/.

    References:
        [Harper15].
    """

    name = "ml-100k-users"
    folders = (name,)
    class_names: Sequence[str] = ("F", "M")
    schema = (
        Column(name="age", kind="number", lowest=1, highest=99),
        Column(name="occupation", values=OCCUPATIONS),
    )

    def __init__(self, *, auxiliary_per_class: int = 10, **kwargs: Any) -> None:
        super().__init__(auxiliary_per_class=auxiliary_per_class, **kwargs)

    def read_rows(self) -> tuple[Tensor, Tensor, Tensor | None]:
        path = self.data_root() / "ml-100k" / "u.user"
        names = ("user", "age", "gender", "occupation", "zip")
        return read_schema(path, self.schema, "gender", self.class_names, page=_PAGE, separator="|", names=names)
