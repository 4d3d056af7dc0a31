"""What tables on rankers of images have in common (RAIFLE, sections V.C, VI.C): users who vote on items, attacked."""

import dataclasses
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attacks.base import Attack, ServerView
from attacks.interactions.affine_inversion import AffineInversion
from attacks.interactions.chance import Chance
from datamodules.base import FederatedDataModule
from datamodules.keys import generator_for
from defenses.base import Defense
from defenses.local_dp import LocalDP
from errors import InputError
from experiments.base import Choice, PaperCell, PaperExperiment, as_number, check_names, plain_number
from modules.federated import FederatedModule
from modules.image_ranker import ImageRankerLearner, voting_round
from modules.nets.ranker import ranker_parameters
from modules.pointwise_matching import FGSMMatching, ManipulatedPointwiseMatching, PointwiseMatching
from reports.evaluation import Evaluation, attack_view
from reports.results import VictimRow

VOTE_ATTACKS: dict[str, type[Attack]] = {
    kind.name: kind for kind in (PointwiseMatching, FGSMMatching, ManipulatedPointwiseMatching, AffineInversion, Chance)
}
UNITS = {"linear": 0, "neural-2": 2, "neural-4": 4, "neural-8": 8}
"""Hidden units by a ranker's name."""
_LITTLE = 2**22
"""Numbers in the features of all users up to which a set of items need not be shared to be fast."""


@dataclass(frozen=True, kw_only=True)
class VotingTable(PaperExperiment):
    """A table: every extractor and manipulation, ranker, ratio of items to features, and budget.

    Attributes:
        experiment: its name.
        metrics: the metrics it reports.
        data: data sets.
        manipulations: by what the server does to the items, the attacks on it.
        attacks: constructor arguments of the attacks, by name.
        rankers: ``linear`` or ``neural-UNITS``.
        ratios: items that a user votes on, as multiples of the number of features.
        epsilons: privacy budgets of local DP.
        limits: by slow attack, how many users of each cell it attacks.
        only: by slow attack, the extractors with which it runs; all for those not named.
        simulations: users of each cell, each with a ranker and votes of its own.
        item_sets: how often items are drawn anew: users of one set vote on the same items.
        clip: L2 norm to which an update is clipped under local DP; the paper's sensitivity is twice that.
        delta: delta of local DP.
    """

    experiment: str
    metrics: list[str]
    data: list[str]
    manipulations: dict[str, list[str]]
    attacks: dict[str, dict[str, Any]]
    rankers: list[str]
    ratios: list[int]
    epsilons: list[float]
    limits: dict[str, int] = field(default_factory=dict)
    only: dict[str, list[str]] = field(default_factory=dict)
    simulations: int = 200
    item_sets: int = 4
    clip: float = 0.025
    delta: float = 1e-8

    @staticmethod
    def numbers(content: Mapping[str, Any]) -> dict[str, Any]:
        """A configuration whose budgets are numbers."""
        return {**content, "epsilons": [as_number("epsilon", value) for value in content["epsilons"]]}

    def check(self, manipulations: Sequence[str]) -> None:
        """Refuses what no table of this kind can have.

        Raises:
            InputError: a name is unknown, or a number impossible.
        """
        check_names("attack", list(self.attacks), list(VOTE_ATTACKS))
        check_names("manipulation", list(self.manipulations), manipulations)
        check_names("ranker", self.rankers, list(UNITS))
        for names in self.manipulations.values():
            check_names("attack", names, list(self.attacks))
        if min([*self.ratios, self.item_sets]) < 1 or self.simulations < self.item_sets:
            raise InputError(
                expected="ratios and item_sets of at least 1, and as many simulations as item_sets",
                found=f"{self.ratios}, {self.item_sets}, {self.simulations}",
                way_out="The paper has ratios 1, 2, 4 and 200 simulations.",
            )

    @property
    def known_attacks(self) -> Mapping[str, type[Attack]]:
        """See `PaperExperiment.known_attacks`."""
        return VOTE_ATTACKS

    def columns(self) -> Iterator[tuple[str, str, int, float]]:
        """Every manipulation, ranker, ratio and budget."""
        return itertools.product(self.manipulations, self.rankers, self.ratios, self.epsilons)

    def attacks_on(self, manipulation: str, extractor: str) -> list[str]:
        """Names of the attacks to run in a cell."""
        names = self.manipulations[manipulation]
        return [name for name in names if extractor in self.only.get(name, [extractor])]


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

    def kind_of_features(self) -> dict[str, Any]:
        """Keys of the setting that say where the features come from."""
        raise NotImplementedError

    def features(self, directory: Path, item_set: int) -> Tensor:
        """``(R, F)`` features of the items in a set."""
        raise NotImplementedError

    def build(self) -> tuple[FederatedModule, FederatedDataModule]:
        """Nothing is recorded: see `evaluate`."""
        raise NotImplementedError("users who vote are simulated and attacked at once")

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
            generators=lambda client: generator_for(self.seed, "defense", *keys[client]),
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
