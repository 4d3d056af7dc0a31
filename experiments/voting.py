"""What tables on rankers of images have in common (RAIFLE, sections V.C, VI.C): users who vote on items, attacked."""

import abc
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attacks.base import Attack, ServerView
from datamodules.keys import generator_for
from defenses.base import Defense
from defenses.local_dp import LocalDP
from experiments.base import Choice, PaperCell
from experiments.options import plain_number
from experiments.voting_table import UNITS, VotingTable
from modules.image_ranker import ImageRankerLearner, voting_round
from modules.nets.ranker import ranker_parameters
from reports.evaluation import Evaluation, attack_view
from reports.results import VictimRow

_LITTLE = 2**22
"""Numbers in the features of all users up to which a set of items need not be shared to be fast."""


@dataclass(frozen=True)
class VotingCell(PaperCell):
    """Users of one kind of ranker, who vote on as many items in one budget; a subclass gives the items' features."""

    table: VotingTable
    extractor: str
    manipulation: str
    ranker: str
    ratio: int
    epsilon: float

    @property
    def key(self) -> str:
        """See `PaperCell.key`."""
        cell = f"{self.data}-{self.choice.scale}-{self.extractor}-{self.manipulation}-{self.ranker}-{self.ratio}x"
        return f"{cell}-eps{self.epsilon:g}-seed{self.seed}-victims{self.choice.victims or 'all'}"

    @property
    def setting(self) -> dict[str, Any]:
        """See `PaperCell.setting`."""
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

    def make_attacks(self) -> list[Attack]:
        """See `PaperCell.make_attacks`."""
        return self.experiment.make_attacks(self.table.attacks_on(self.manipulation, self.extractor))

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """Simulates users and attacks them, as many at once as are best."""
        result, seconds = Evaluation(), {"train": 0.0, "attack": 0.0}
        users = min(self.choice.victims or self.table.simulations, self.table.simulations)
        attacks = self.make_attacks()
        limits = {attack.name: self.table.limits.get(attack.name, users) for attack in attacks}
        start = time.perf_counter()
        for numbers, features in self._served(directory, users):
            view, votes = self.vote(features, numbers)
            middle = time.perf_counter()
            for attack in attacks:
                kept = sum(number < limits[attack.name] for number in numbers)
                result.rows += self._attacked(attack, first_clients(view, kept), votes[:kept])
            end = time.perf_counter()
            seconds["train"] += middle - start
            seconds["attack"] += end - middle
            start = end
        return result, seconds

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
        )
        return view, votes

    def _defenses(self) -> list[Defense]:
        if math.isinf(self.epsilon):
            return []
        return [LocalDP(clip=self.table.clip, epsilon=self.epsilon, delta=self.table.delta)]

    def _attacked(self, attack: Attack, view: ServerView, votes: Tensor) -> list[VictimRow]:
        if not view.victims:
            return []
        return attack_view(attack, view, {"labels": votes}, seed=self.seed, setting=self.setting)[0]


def first_clients(view: ServerView, count: int) -> ServerView:
    """The first clients of a view; those who were served the same items still share them."""
    assert view.client_models is not None
    assert view.served is not None
    assert view.features is not None
    return dataclasses.replace(
        view,
        pseudonyms=view.pseudonyms[:count],
        example_counts=view.example_counts[:count],
        deltas={name: value[:count] for name, value in view.deltas.items()},
        client_models={name: value[:count] for name, value in view.client_models.items()},
        served=view.served[:count],
        features=view.features[:count],
    )


def table_cells(
    table: VotingTable, choice: Choice, kind: type[VotingCell], extractors: Sequence[str]
) -> Iterator[PaperCell]:
    """Every cell of a table in which something attacks."""
    columns = list(table.columns())
    for data, extractor, seed in itertools.product(table.names(choice), extractors, range(choice.seeds)):
        for manipulation, ranker, ratio, epsilon in columns:
            if table.attacks_on(manipulation, extractor):
                yield kind(table, data, choice, seed, table, extractor, manipulation, ranker, ratio, epsilon)
