"""RAIFLE's federated recommendation, tables V, VI, IX and XIII, as an experiment."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from datamodules.base import FederatedDataModule
from datamodules.movielens import MovieLens
from datamodules.recommendation import RecommenderDataModule
from datamodules.steam import Steam
from datamodules.synthetic import SyntheticRecommender
from defenses.base import Defense
from defenses.local_dp import LocalDP
from defenses.update_l1 import UpdateL1
from experiments.base import Choice, PaperCell, PaperExperiment
from experiments.options import as_number, check_names, plain_number
from experiments.recorded_cell import RecordedCell
from modules.federated import FederatedModule
from modules.fncf import FNCF
from protocol.errors import InputError
from protocol.view import ITEM_EMBEDDING

_DATA: dict[str, type[RecommenderDataModule]] = {
    "ml-100k": MovieLens,
    "steam-200k": Steam,
    "synthetic": SyntheticRecommender,
}


@dataclass(frozen=True)
class Column:
    """One column of a table: what the clients do to protect themselves.

    Attributes:
        epsilon: privacy budget of local DP, infinite for none.
        defence: strength of IMIA's L1 regularisation, 0 for none.
    """

    epsilon: float = math.inf
    defence: float = 0.0

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        object.__setattr__(self, "epsilon", as_number("epsilon", self.epsilon))
        object.__setattr__(self, "defence", as_number("defence", self.defence))
        if self.epsilon <= 0 or self.defence < 0:
            raise InputError(
                expected="epsilon > 0 and defence >= 0",
                found=f"epsilon {self.epsilon}, defence {self.defence}",
                way_out="Fix the cell in the configuration; epsilon: inf means no noise.",
            )


@dataclass(frozen=True, kw_only=True)
class RecommendationExperiment(PaperExperiment):
    """A table.

    Attributes:
        columns: its columns.
        small_clients: by data set, how many clients take part at scale ``small``; all where not named.
        clip: L2 norm to which the item update is clipped under local DP.
        delta: delta of local DP.
    """

    families = ("recommendation", "interactions")
    columns: list[Column]
    data: list[str] = field(default_factory=lambda: ["ml-100k", "steam-200k"])
    small_clients: dict[str, int] = field(default_factory=dict)
    clip: float = 0.05
    delta: float = 1e-8

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        """From a configuration: ``cells`` are its columns."""
        columns = [Column(**cell) for cell in content.pop("cells")]
        made = cls(columns=columns, **content)
        check_names("data set", made.data, list(_DATA))
        return made

    @property
    def known_data(self) -> Sequence[str]:
        return list(_DATA)

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        return self.grid(choice, _Cell, self.columns)

    def source(self, data: str, root: str | None) -> FederatedDataModule:
        return _DATA[data](root=root)

    def defenses(self, column: Column) -> list[Defense]:
        """The clients' defences, as published: only the item embeddings are clipped and noised."""
        made: list[Defense] = [UpdateL1(strength=column.defence)] if column.defence else []
        if math.isfinite(column.epsilon):
            made.append(LocalDP(clip=self.clip, epsilon=column.epsilon, delta=self.delta, parameters=[ITEM_EMBEDDING]))
        return made


@dataclass(frozen=True)
class _Cell(RecordedCell[RecommendationExperiment]):
    column: Column

    @property
    def recorded(self) -> list[str]:
        return [ITEM_EMBEDDING]

    @property
    def key(self) -> str:
        column, choice = self.column, self.choice
        cell = f"{self.data}-{choice.scale}-eps{column.epsilon:g}-l1{column.defence:g}"
        return f"{cell}-seed{self.seed}-victims{choice.victims or 'all'}"

    @property
    def setting(self) -> dict[str, Any]:
        epsilon, defence = plain_number(self.column.epsilon), plain_number(self.column.defence)
        return {"data": self.data, "epsilon": epsilon, "defence": defence}

    def build(self) -> tuple[FederatedModule, FederatedDataModule]:
        small = self.choice.scale == "small"
        clients: int | float = self.table.small_clients.get(self.data, 1.0) if small else 1.0
        # The table attacks every interaction, so none is held out.
        source = _DATA[self.data](root=self.choice.root, clients_per_round=clients, seed=self.seed, holdout=False)
        module = FNCF(
            num_items=source.num_items,
            num_clients=source.num_clients,
            defenses=self.table.defenses(self.column),
            seed=self.seed,
        )
        return module, source
