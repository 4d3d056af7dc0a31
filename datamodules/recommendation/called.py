"""Clients that a server selects in many rounds in order to identify their private vectors."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from protocol.errors import require
from protocol.ranges import PositiveInt, check_fields

if TYPE_CHECKING:
    from datamodules.recommendation.base import RecommenderDataModule


@dataclass(frozen=True, kw_only=True)
class Called:
    """Clients that the server selects in all rounds from some round on.

    Attributes:
        after: number of rounds with random cohorts before.
        clients: number of clients, drawn among the participants of those rounds.
    """

    after: PositiveInt = 200
    clients: PositiveInt = 200

    def __post_init__(self) -> None:
        check_fields(self)


def draw_clients(data: "RecommenderDataModule", count: int, *, among: Tensor | None = None) -> Tensor:
    """Draws clients who do not like exactly half of their items (London 2020, Assumption 1).

    Args:
        data: the clients.
        count: number of clients; all if there are fewer.
        among: numbers of earlier participants. Only those to which the theorems apply are drawn: they have both
            labels and, where negatives are sampled for a rate of likes, enough items to reach that rate.

    Returns:
        ``(V,)`` numbers of the clients, ascending.

    Raises:
        InputError: no client qualifies.
    """
    cohort = data.build_cohort(0, torch.arange(data.num_clients))
    order = cohort.counts.argsort(stable=True)
    rates = (cohort.examples["label"].double().sum(1) / cohort.counts)[order]
    fits = rates != 0.5
    if among is not None:
        fits &= torch.isin(cohort.clients[order], among) & (rates > 0) & (rates < 1)
        if data.rate is not None:
            # Users of more than half the catalogue have too few other items to reach the rate.
            fits &= rates <= data.rate + 1e-9
    found = order[torch.nonzero(fits).flatten()]
    require(
        len(found),
        "clients who like some of their items, and not exactly half of them (Assumption 1)",
        "none",
        "Change data.negatives_per_positive, or let more clients take part.",
    )
    drawn = torch.randperm(len(found), generator=data.secret_draws("victims"))
    return cohort.clients[found[drawn[:count]]].sort().values
