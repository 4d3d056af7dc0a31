"""Tables on rankers of images as configurations (RAIFLE, sections V.C, VI.C)."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attacks.base import Attack
from attacks.interactions.affine_inversion import AffineInversion
from attacks.interactions.chance import Chance
from errors import InputError
from experiments.base import PaperExperiment
from experiments.options import as_number, check_names
from modules.pointwise_matching import FGSMMatching, ManipulatedPointwiseMatching, PointwiseMatching

VOTE_ATTACKS: dict[str, type[Attack]] = {
    kind.name: kind for kind in (PointwiseMatching, FGSMMatching, ManipulatedPointwiseMatching, AffineInversion, Chance)
}
UNITS = {"linear": 0, "neural-2": 2, "neural-4": 4, "neural-8": 8}
"""Hidden units by a ranker's name."""


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
