"""Repeated selection of clients by the server, in order to identify their private vectors."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from fedleak.client.cohort import Cohort
from fedleak.core.errors import require
from fedleak.core.ranges import PositiveInt
from fedleak.server.deviation import Deviation, Notice


@dataclass(frozen=True, kw_only=True)
class RepeatedSelection(Deviation):
    """Selection of the same clients in all rounds from some round on.

    Attributes:
        after: number of rounds with random cohorts before.
        clients: number of clients, drawn among the participants of those rounds.
    """

    name = "repeated-selection"
    part = "selects"
    does = "selects the same clients in every round, instead of drawing them at random"
    noticed = (
        Notice("client", "it is asked to train in every round"),
        Notice("auditor", "the same clients in round after round of the server's log"),
    )
    references = ("London20, Protocol 2",)

    after: PositiveInt = 200
    clients: PositiveInt = 200


def draw_identifiable(
    everyone: Cohort, count: int, *, among: Tensor | None = None, rate: float | None = None, generator: Generator
) -> Tensor:
    """``(V,)`` numbers, ascending, of drawn clients who do not like exactly half of their items (London, Assumption 1).

    Args:
        everyone: all clients, with their labels.
        count: number of clients; all if there are fewer.
        among: numbers of earlier participants. Only those to which the theorems apply are drawn: they have both
            labels and, where negatives are sampled for a rate of likes, enough items to reach that rate.
        rate: share of likes for which negatives are sampled, None if they are not.
        generator: source of the draw.

    Raises:
        InputError: no client qualifies.
    """
    # Share of liked items of each client; Assumption 1 excludes exactly one half.
    order = everyone.counts.argsort(stable=True)
    rates = (everyone.examples["label"].double().sum(1) / everyone.counts)[order]
    fits = rates != 0.5
    if among is not None:
        fits &= torch.isin(everyone.clients[order], among) & (rates > 0) & (rates < 1)
        if rate is not None:
            # Users of more than half the catalogue have too few other items to reach the rate.
            fits &= rates <= rate + 1e-9
    identifiable = order[torch.nonzero(fits).flatten()]
    require(
        len(identifiable),
        "clients who like some of their items, and not exactly half of them (Assumption 1)",
        "none",
        "Change data.negatives_per_positive, or let more clients take part.",
    )
    drawn = identifiable[torch.randperm(len(identifiable), generator=generator)[:count]]
    return everyone.clients[drawn].sort().values
