"""What tables on rankers of images have in common (RAIFLE, sections V.C, VI.C): users who vote on items, attacked."""

import abc
import functools
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from attacks.base import Attack
from defenses.base import Defense
from defenses.local_dp import LocalDP
from evaluation.runner import Evaluation, attack_view, joined
from experiments.base import Choice, PaperCell, PaperExperiment
from experiments.options import as_number, check_names, plain_number
from modules.image_ranker import ImageRankerLearner, voting_round
from modules.nets.ranker import ranker_parameters
from protocol.errors import InputError
from protocol.seeding import generator_for
from protocol.view import ServerView

UNITS = {"linear": 0, "neural-2": 2, "neural-4": 4, "neural-8": 8}
"""Hidden units by a ranker's name."""
_LITTLE = 2**22
"""Numbers in the features of all users up to which a set of items need not be shared to be fast."""


@dataclass(frozen=True, kw_only=True)
class VotingTable(PaperExperiment):
    """A table: every extractor and manipulation, ranker, ratio of items to features, and budget.

    Attributes:
        known_manipulations: what the server may do to the items.
        manipulations: by what the server does to the items, the attacks on it.
        rankers: ``linear`` or ``neural-UNITS``.
        ratios: items that a user votes on, as multiples of the number of features.
        epsilons: privacy budgets of local DP.
        only: by slow attack, the extractors with which it runs; all for those not named.
        simulations: users of each cell, each with a ranker and votes of its own.
        item_sets: how often items are drawn anew: users of one set vote on the same items.
        clip: L2 norm to which an update is clipped under local DP; the paper's sensitivity is twice that.
        delta: delta of local DP.
    """

    families = ("images", "interactions")
    known_manipulations: ClassVar[tuple[str, ...]]
    manipulations: dict[str, list[str]]
    rankers: list[str]
    ratios: list[int]
    epsilons: list[float]
    only: dict[str, list[str]] = field(default_factory=dict)
    simulations: int = 200
    item_sets: int = 4
    clip: float = 0.025
    delta: float = 1e-8

    def __post_init__(self) -> None:
        """Refuses what no table of this kind can have."""
        object.__setattr__(self, "epsilons", [as_number("epsilon", value) for value in self.epsilons])
        check_names("manipulation", list(self.manipulations), self.known_manipulations)
        check_names("ranker", self.rankers, list(UNITS))
        for names in self.manipulations.values():
            check_names("attack", names, list(self.attacks))
        if min([*self.ratios, self.item_sets]) < 1 or self.simulations < self.item_sets:
            raise InputError(
                expected="ratios and item_sets of at least 1, and as many simulations as item_sets",
                found=f"{self.ratios}, {self.item_sets}, {self.simulations}",
                way_out="The paper has ratios 1, 2, 4 and 200 simulations.",
            )

    def columns(self) -> Iterator[tuple[str, str, int, float]]:
        """Every manipulation, ranker, ratio and budget."""
        return itertools.product(self.manipulations, self.rankers, self.ratios, self.epsilons)

    def attacks_on(self, manipulation: str, extractor: str) -> list[str]:
        """Names of the attacks to run in a cell."""
        names = self.manipulations[manipulation]
        return [name for name in names if extractor in self.only.get(name, [extractor])]


Voting = TypeVar("Voting", bound=VotingTable)


@dataclass(frozen=True)
class VotingCell(PaperCell[Voting], Generic[Voting]):
    """Users of one kind of ranker, who vote on as many items in one budget; a subclass gives the items' features."""

    extractor: str
    manipulation: str
    ranker: str
    ratio: int
    epsilon: float

    @property
    def key(self) -> str:
        cell = f"{self.data}-{self.choice.scale}-{self.extractor}-{self.manipulation}-{self.ranker}-{self.ratio}x"
        return f"{cell}-eps{self.epsilon:g}-seed{self.seed}-victims{self.choice.victims or 'all'}"

    @property
    def setting(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "extractor": self.extractor,
            **self.kind_of_features(),
            "ranker": self.ranker,
            "ratio": self.ratio,
            "epsilon": plain_number(self.epsilon),
            "manipulation": self.manipulation,
        }

    @abc.abstractmethod
    def kind_of_features(self) -> dict[str, Any]:
        """Keys of the setting that say where the features come from."""

    @abc.abstractmethod
    def features(self, directory: Path, item_set: int) -> Tensor:
        """``(R, F)`` features of the items in a set."""

    def make_attacks(self) -> dict[str, Attack]:
        return self.table.make_attacks(self.table.attacks_on(self.manipulation, self.extractor))

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Simulates users and attacks them, as many at once as are best."""
        found: list[Evaluation] = []
        seconds = {"train": 0.0, "attack": 0.0}
        users = min(self.choice.victims or self.table.simulations, self.table.simulations)
        attacks = self.make_attacks()
        start = time.perf_counter()
        for numbers, features in self._served(directory, users):
            view, votes = self.vote(features, numbers)
            middle = time.perf_counter()
            for name, attack in attacks.items():
                few = torch.arange(sum(number < self.table.limits.get(name, users) for number in numbers))
                if len(few):
                    part, truth = view.select(few), {"labels": votes[few]}
                    found.append(attack_view(attack, part, truth, seed=self.seed, setting=self.setting))
            end = time.perf_counter()
            seconds["train"] += middle - start
            seconds["attack"] += end - middle
            start = end
        whole = joined(found)
        whole.roc = {}
        return whole, seconds

    def _served(self, directory: Path, users: int) -> Iterator[tuple[list[int], Tensor]]:
        """Users, dealt out to the sets of items in turn, with the features of what they are served.

        Either the users of one set, ``(R, F)``, or where that is little all users, ``(V, R, F)``.
        """
        sets = min(self.table.item_sets, users)
        drawn = (self.features(directory, item_set) for item_set in range(sets))
        first = next(drawn)
        if users * first.numel() <= _LITTLE:
            yield list(range(users)), torch.stack([first, *drawn])[torch.arange(users) % sets]
            return
        for item_set, features in enumerate(itertools.chain([first], drawn)):
            yield list(range(item_set, users, sets)), features

    def vote(self, features: Tensor, numbers: Sequence[int]) -> tuple[ServerView, Tensor]:
        """What the server sees of some users, and their votes ``(V, R)``; the same whatever is done to the items."""
        units, width = UNITS[self.ranker], features.shape[-1]
        keys = [(units, self.ratio, user) for user in numbers]
        drawn = [
            ranker_parameters(width, units, generator_for(self.seed, "voters-model", *key), scaled=True) for key in keys
        ]
        models = {name: torch.stack([model[name] for model in drawn]) for name in drawn[0]}
        sources = [generator_for(self.seed, "votes", *key) for key in keys]
        votes = torch.stack([torch.rand(features.shape[-2], generator=source).round() for source in sources])
        view = voting_round(
            models,
            features,
            votes,
            ImageRankerLearner(),
            defenses=self._defenses(),
            generators=functools.cache(lambda client: generator_for(self.seed, "defense", *keys[client])),
            pseudonyms=torch.tensor(numbers),
            manipulation=None if self.manipulation == "none" else self.manipulation,
        )
        return view, votes

    def _defenses(self) -> list[Defense]:
        if math.isinf(self.epsilon):
            return []
        return [LocalDP(clip=self.table.clip, epsilon=self.epsilon, delta=self.table.delta)]


def table_cells(
    table: VotingTable, choice: Choice, kind: type[VotingCell[Any]], extractors: Sequence[str]
) -> Iterator[PaperCell[Any]]:
    """Every cell of a table in which something attacks."""
    columns = list(table.columns())
    for data, extractor, seed in itertools.product(table.names(choice), extractors, range(choice.seeds)):
        for manipulation, ranker, ratio, epsilon in columns:
            if table.attacks_on(manipulation, extractor):
                yield kind(table, data, choice, seed, extractor, manipulation, ranker, ratio, epsilon)
