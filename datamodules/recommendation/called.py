"""Clients that a server draws to call them, or to listen to them, for long: those whose vectors can be identified."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from protocol.errors import InputError
from protocol.seeding import generator_for
from ranges import PositiveInt, check_fields

if TYPE_CHECKING:
    from datamodules.recommendation.base import RecommenderDataModule


@dataclass(frozen=True, kw_only=True)
class Called:
    """Whom a server calls in all of its rounds from some round on.

    Attributes:
        after: number of rounds before.
        clients: clients that it draws among those who took part in them.
    """

    after: PositiveInt = 200
    clients: PositiveInt = 200

    def __post_init__(self) -> None:
        """Refuses impossible numbers."""
        check_fields(self)


def draw_clients(data: "RecommenderDataModule", count: int, *, among: Tensor | None = None) -> Tensor:
    """Draws clients who do not like exactly half of their items (London 2020, Assumption 1).

    Args:
        data: the clients.
        count: how many; all where there are fewer.
        among: numbers of those who took part before. Of them only those are drawn to whom the theorems apply: who have
            both labels and, where labels are drawn for a rate of likes, could be given that rate.

    Returns:
        ``(V,)`` their numbers, ascending.

    Raises:
        InputError: there is none.
    """
    cohort = data.build_cohort(0, torch.arange(data.num_clients))
    order = cohort.counts.argsort(stable=True)
    rates = (cohort.examples["label"].double().sum(1) / cohort.counts)[order]
    fits = rates != 0.5
    if among is not None:
        fits &= torch.isin(cohort.clients[order], among) & (rates > 0) & (rates < 1)
        if data.rate is not None:
            # Users of more than half the catalogue have too few items left to be given their rate.
            fits &= rates <= data.rate + 1e-9
    found = order[torch.nonzero(fits).flatten()]
    if not len(found):
        raise InputError(
            expected="clients who like some of their items, and not exactly half of them (Assumption 1)",
            found="none",
            way_out="Change data.negatives_per_positive, or let more clients take part.",
        )
    drawn = torch.randperm(len(found), generator=generator_for(data.seed, "victims"))
    return cohort.clients[found[drawn[:count]]].sort().values
