"""HAM10000's metadata: age, sex and place of a lesion, how its diagnosis was confirmed, and the diagnosis."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fedleak.datamodules.tables.base import TableDataModule
from fedleak.datamodules.tables.csv_table import read_schema
from fedleak.datamodules.tables.schema import Column

_PAGE = "https://www.kaggle.com/datasets/kmader/skin-cancer-mnist-ham10000"
_SITES = (
    "abdomen",
    "acral",
    "back",
    "chest",
    "ear",
    "face",
    "foot",
    "genital",
    "hand",
    "lower extremity",
    "neck",
    "scalp",
    "trunk",
    "upper extremity",
    "unknown",
)


class LesionRecords(TableDataModule):
    """HAM10000's metadata, 10,015 rows: age, sex, site and type of confirmation; the class is the diagnosis.

    A row belongs to a photograph; all rows of a lesion belong to one client, to the attacker, or to the test. The 57
    missing ages become the median, 50; unknown sex and site are categories. There are 3,240 possible rows (ages are in
    steps of 5 years), of which 801 occur.

    Files: ``root/ham10000/HAM10000_metadata.csv`` from
    https://www.kaggle.com/datasets/kmader/skin-cancer-mnist-ham10000; no images are needed.

    References:
        [Tschandl18].
    """

    name = "ham10000-metadata"
    folders = (name,)
    class_names: Sequence[str] = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
    schema = (
        Column(name="age", kind="number", lowest=0, highest=85, step=5, missing="median"),
        Column(name="sex", values=("female", "male", "unknown")),
        Column(name="localization", values=_SITES),
        Column(name="dx_type", values=("histo", "follow_up", "consensus", "confocal")),
    )

    def __init__(self, *, auxiliary_per_class: int = 10, **kwargs: Any) -> None:
        super().__init__(auxiliary_per_class=auxiliary_per_class, **kwargs)

    def read_rows(self) -> tuple[Tensor, Tensor, Tensor | None]:
        path = self.data_root() / "ham10000" / "HAM10000_metadata.csv"
        return read_schema(path, self.schema, "dx", self.class_names, group="lesion_id", page=_PAGE)
