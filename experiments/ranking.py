"""RAIFLE's federated online learning to rank, tables VII, IX, XI and XIV, as an experiment."""

import functools
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from inspect import isabstract
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import pandas as pd
import torch
from torch import Tensor

from attacks import manipulation
from attacks.base import Attack
from attacks.manipulation import Manipulation, NoiseInjection, Permutation
from attacks.ranking.channel_bounds import capacity_bits, entropy_bits
from attacks.ranking.lists import ranked_lists
from attacks.ranking.priors import ListPrior, log_prior
from datamodules.base import FederatedDataModule
from datamodules.deltas import Recording
from defenses.base import Defense
from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.aggregates import AGGREGATES
from experiments.base import Choice, PaperCell
from experiments.options import check_names, plain_number, required_arguments
from experiments.ranking_table import OnlineTable, ranking_data
from experiments.recorded_cell import RecordedCell, of_people
from modules.federated import FederatedModule
from modules.registry import learner_from
from protocol.errors import InputError
from protocol.simulators import RankingSimulator
from protocol.view import ServerView

_EXPORTED: list[type[Manipulation]] = [getattr(manipulation, name) for name in manipulation.__all__]
MANIPULATIONS: dict[str, Callable[[], Manipulation] | None] = {
    "none": None,
    **{kind.name: kind for kind in _EXPORTED if not isabstract(kind) and not required_arguments(kind)},
    "noise-in-30-percent": functools.partial(NoiseInjection, share_of_features=0.3),
    "half-noise": functools.partial(NoiseInjection, share_of_real=0.5),
    "tenth-noise": functools.partial(NoiseInjection, share_of_real=0.9),
    "permutation-over-lists": functools.partial(Permutation, among="client"),
}
"""What the server may send, by name: what the room of manipulations exports, and some of these with arguments."""


@dataclass(frozen=True, kw_only=True)
class RankingExperiment(OnlineTable):
    """A table: every ranker with every click model, number of queries, budget and manipulation.

    Attributes:
        queries: queries of a client.
        manipulations: by what the server sends (``none``, ``noise``, ``codebook`` ...), the attacks on it.
        users: least number of users in a cell; the queries are dealt out as often as that takes.
        participants: clients in a secure aggregate; 1 for none.
        aggregates: how the server goes about secure aggregates, see `experiments.aggregates`.
        priors: what the attacks that take a prior believe of the clicks, each in a cell of its own; none for what
            `attacks` says of each.
        bounds: manipulations beside which stand the bits that a noisy update can carry and those of the clicks.
        also: further parts of the table, each with what differs in it.
    """

    small_cells = True
    queries: list[int]
    manipulations: dict[str, list[str]]
    users: int = 100
    participants: list[int] = field(default_factory=lambda: [1])
    aggregates: list[str] = field(default_factory=lambda: ["noise-only"])
    priors: list[ListPrior | None] = field(default_factory=lambda: [None])
    bounds: list[str] = field(default_factory=list)
    also: list["RankingExperiment"] = field(default_factory=list)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        own = {key: value for key, value in content.items() if key != "also"}
        return cls(**own, also=[cls.parse({**own, **part}) for part in content.get("also", [])])

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("aggregate", self.aggregates, list(AGGREGATES))
        check_names("manipulation", list(self.manipulations), list(MANIPULATIONS))
        for names in self.manipulations.values():
            check_names("attack", names, list(self.attacks))

    @property
    def cell(self) -> "type[RankingCell[Any]]":
        """What its cells are."""
        return RankingCell

    @property
    def axes(self) -> tuple[Collection[Any], ...]:
        """What its cells differ in, in the order of their fields."""
        users = (self.rankers, self.click_models, self.queries, self.epsilons)
        return (*users, self.participants, self.aggregates, self.manipulations, self.priors)

    def cells(self, choice: Choice) -> Iterator[PaperCell[Any]]:
        yield from self.grid(choice, self.cell, *self.axes)
        for part in self.also:
            yield from part.cells(choice)


Ranking = TypeVar("Ranking", bound=RankingExperiment)


@dataclass(frozen=True)
class RankingCell(RecordedCell[Ranking], Generic[Ranking]):
    """A cell of a table on rankings."""

    ranker: str
    click_model: str
    queries: int
    epsilon: float
    participants: int
    aggregate: str
    manipulation: str
    prior: ListPrior | None

    @property
    def victims_per_view(self) -> int:
        return 256

    @property
    def key(self) -> str:
        cell = f"{self.data}-{self.ranker}-{self.click_model}-q{self.queries}-eps{self.epsilon:g}-{self.manipulation}"
        cell += f"-of{self.participants}" if self.participants > 1 else ""
        cell += f"-{self.aggregate}" if self._targets else ""
        cell += f"-{self.prior}" if self.prior else ""
        return f"{cell}-seed{self.seed}-victims{self.choice.victims or 'all'}"

    @property
    def setting(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "ranker": self.ranker,
            "click_model": self.click_model,
            "queries": self.queries,
            "epsilon": plain_number(self.epsilon),
            "manipulation": self.manipulation,
            **({"participants": self.participants} if self.participants > 1 else {}),
            **({"aggregate": self.aggregate} if self._targets else {}),
            **({"prior": self.prior} if self.prior else {}),
        }

    def make_attacks(self) -> dict[str, Attack]:
        names, prior = self.table.manipulations[self.manipulation], self.prior
        believing = [name for name in names if prior is not None and self.table.takes(name, "prior")]
        return self.table.make_attacks(names, {name: {"prior": prior} for name in believing})

    @property
    def _targets(self) -> int:
        return AGGREGATES[self.aggregate].targets

    @functools.cached_property
    def _users(self) -> int:
        """Clients among whom all queries are dealt out once."""
        return ranking_data(self.data, self.choice.root, queries_per_client=self.queries).num_clients

    @functools.cached_property
    def _aggregates(self) -> int:
        """Whole aggregates of targeted clients that a round has room for."""
        if self.participants > self._users:
            raise InputError(
                expected=f"at most {self._users} participants of {self.queries} queries each",
                found=str(self.participants),
                way_out="Give each client fewer queries, or aggregate fewer of them.",
            )
        return self._users // self.participants

    @property
    def rounds(self) -> int:
        """One for every time that the queries are dealt out."""
        victims = self._targets * self._aggregates if self._targets else self._users
        return math.ceil(self.table.users / victims)

    def build(self) -> tuple[FederatedModule, FederatedDataModule]:
        source = ranking_data(
            self.data,
            self.choice.root,
            queries_per_client=self.queries,
            shuffles=self.rounds,
            clients_per_round=self._aggregates * self.participants if self._targets else 1.0,
            seed=self.seed,
        )
        kind = MANIPULATIONS[self.manipulation]
        inner = None if kind is None else kind()
        module = self.table.learner(
            source,
            self.ranker,
            self.click_model,
            manipulation=AGGREGATES[self.aggregate].manipulation(inner, self.participants),
            # A fresh ranker for every user, says the paper; here for every time the queries are dealt out.
            new_model_every_round=True,
            defenses=self.defenses(),
            seed=self.seed,
        )
        return module, source

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """With the bounds, where the table asks for them."""
        evaluation, seconds = super().evaluate(directory)
        if self.manipulation in self.table.bounds:
            recording = Recording(directory / "deltas")
            evaluation.scores = concat([evaluation.scores, of_people(bounds(recording, self), recording)])
        return evaluation, seconds

    def defenses(self) -> list[Defense]:
        """What the clients do to protect themselves."""
        noisy = self.table.noise(self.epsilon)
        if self.participants == 1:
            return [*noisy]
        noise = sum(private.noise_scale for private in noisy)
        return [*noisy, AGGREGATES[self.aggregate].defense(self.participants, noise)]


def bounds(recording: Recording, cell: PaperCell[Any]) -> pd.DataFrame:
    """Scores ``click-entropy`` of the cascade model, and ``capacity-bound`` where updates are clipped and noisy.

    Args:
        recording: of a learner that ranks.
        cell: that it is of.
    """
    views = recording.views(victims_per_view=256, learner=learner_from(recording.manifest.learner))
    return concat(
        [
            cell.scores(
                name, {"bits": values}, victims=view.pseudonyms, round=view.round, items=view.served_mask.sum(1)
            )
            for view in views
            for name, values in _bits(view).items()
        ]
    )


def _bits(view: ServerView) -> dict[str, Tensor]:
    entropy = entropy_bits(log_prior("cascade", ranked_lists(view).mask, view.require(RankingSimulator)))
    released = next(iter(view.model))
    clip, noise = view.clip(released), view.noise_scale(released)
    if clip is None or not noise:
        return {"click-entropy": entropy}
    numbers = sum(value.numel() for value in view.model.values())
    capacity = capacity_bits(clip=clip, noise_scale=noise, dimensions=numbers)
    return {"click-entropy": entropy, "capacity-bound": torch.full_like(entropy, capacity)}
