"""RAIFLE's tables on images at their shapes, on features that are drawn: no image is read, no network run."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from datamodules.drawn_features import WIDTHS, natural_features, noise_features
from experiments.base import Choice, PaperCell
from experiments.options import check_names
from experiments.voting import VotingCell, VotingTable, table_cells
from protocol.errors import InputError
from protocol.seeding import generator_for

DATA = "synthetic-features"


@dataclass(frozen=True)
class _Drawn:
    fingerprint: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class DrawnFeatures(VotingTable):
    """A table of this kind; see `VotingTable`.

    Attributes:
        extractors: networks whose number of features is taken.
        partitions: parts of the features, in one of which an item's noise is.
        scale: standard deviation of the noise.
    """

    small_cells = True
    known_manipulations = ("none", "noise")
    extractors: list[str]
    partitions: int = 2
    scale: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("data set", self.data, [DATA])
        check_names("extractor", self.extractors, list(WIDTHS))
        if self.partitions < 1 or not self.scale > 0:
            raise InputError(
                expected="partitions of at least 1 and a scale above 0",
                found=f"{self.partitions}, {self.scale}",
                way_out="The paper takes 2 and 4.",
            )

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        return table_cells(self, choice, _Cell, self.extractors)

    def source(self, data: str, root: str | None) -> _Drawn:
        described = f"{DATA} {self.extractors} {self.partitions} {self.scale}"
        return _Drawn({"name": data, "sha256": hashlib.sha256(described.encode()).hexdigest()})


@dataclass(frozen=True)
class _Cell(VotingCell[DrawnFeatures]):
    def kind_of_features(self) -> dict[str, Any]:
        return {"features": WIDTHS[self.extractor]}

    def features(self, directory: Path, item_set: int) -> Tensor:
        width = WIDTHS[self.extractor]
        items = width * self.ratio
        generator = generator_for(self.seed, "drawn features", self.ratio, item_set)
        if self.manipulation == "none":
            return natural_features(items, width, generator=generator)
        partitions, scale = self.table.partitions, self.table.scale
        return noise_features(items, width, partitions=partitions, scale=scale, generator=generator)
