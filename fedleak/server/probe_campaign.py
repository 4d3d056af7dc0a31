"""A campaign of a probing server: the clients' summed answers up to each of its points, in memory or replayed."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.client.cohort import Cohort
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.server.probe_answers import Answering, Probed, answer, answer_zeros
from fedleak.server.probing import Probing

_AT_ONCE = 100
"""Clients whose answers are drawn from one generator."""


@dataclass
class Answered:
    """Summed messages of the clients that the server called; items with messages come first.

    Attributes:
        cohort: the clients; their rows contain only items with messages.
        users: ``(C, d)`` private vectors after the campaign so far.
        sums: ``(C, R, d)`` summed messages about each item.
        updates: ``(C, R)`` number of messages about each item.
    """

    cohort: Cohort
    users: Tensor
    sums: Tensor
    updates: Tensor

    def select(self, positions: Tensor) -> "Answered":
        """The clients at `positions`."""
        cohort = self.cohort.select(positions)
        width = cohort.rows[ITEM_EMBEDDING].shape[1]
        return Answered(
            cohort=cohort,
            users=self.users[positions],
            sums=self.sums[positions, :width],
            updates=self.updates[positions, :width],
        )

    def of(self, cohort: Cohort) -> "Answered":
        """The clients that are in a cohort."""
        return self.select(torch.isin(self.cohort.clients, cohort.clients.cpu()).nonzero().flatten())


@dataclass
class _Group:
    """Clients whose answers share a generator, up to some point of a campaign."""

    positions: Tensor
    clients: Probed
    calls: list[Tensor]
    sent: Tensor
    generator: torch.Generator

    def answer_until(self, point: int, how: Answering, *, zeros: bool) -> None:
        """Answers the calls from the point before, or from the start, to a point of the campaign."""
        interactions = self.calls[point]
        if point:
            interactions = interactions - self.calls[point - 1]
        if zeros:
            answer_zeros(self.clients, how, interactions=interactions, generator=self.generator)
        else:
            # Other items are sent equally often to all clients.
            answer(self.clients, self.sent, how, interactions=int(interactions[0]), generator=self.generator)


class Campaign:
    """State of a server's campaigns; earlier points are replayed if they are not in memory.

    Clients are drawn in groups, those with the fewest labels first, so two processes draw other numbers than one.

    Args:
        probing: what the server does.
        how: how clients answer.
        seed: seed of every draw.
    """

    def __init__(self, probing: Probing, how: Answering, *, seed: int) -> None:
        probing.check(how)
        self.probing, self.how, self.seed = probing, how, seed
        self._last = -1
        self._groups: list[_Group] = []

    def until(self, cohort: Cohort, table: Tensor, users: Tensor) -> Answered:
        """Summed messages of the clients at the end of a round; the same cohort is called in all probing rounds.

        ``table (I, d)`` are the honest item vectors, ``users (C, d)`` the private vectors before the campaign.
        """
        campaign, axis, point = self.probing.point(cohort.round)
        # If the round before is in memory, only the calls since its point are answered; otherwise all are replayed.
        first = point if self._last == cohort.round - 1 else 0
        if first == 0:
            self._groups = self._begun(cohort, table.double(), users.double(), campaign, axis)
        for group in self._groups:
            for number in range(first, point + 1):
                group.answer_until(number, self.how, zeros=self.probing.probe == "zeros")
        self._last = cohort.round
        return self._together(cohort)

    def tables_sent(self) -> list[tuple[Tensor, Tensor]]:
        """Positions in the cohort and received item vectors of each group of clients."""
        return [(group.positions, group.sent) for group in self._groups]

    def _begun(self, cohort: Cohort, table: Tensor, users: Tensor, campaign: int, axis: str) -> list[_Group]:
        items = cohort.rows[ITEM_EMBEDDING]
        labels = cohort.examples["label"]
        counts = cohort.counts
        bounds = self.probing.bounds(self.how, table, users, labels, counts)
        groups = []
        # Clients with similar numbers of labels together, so that little of a group is padding.
        for positions in torch.split(counts.argsort(stable=True), _AT_ONCE):
            width = int(counts[positions].max())
            generator = generator_for(self.seed, f"campaign-{axis}", campaign, int(cohort.clients[positions[0]]))
            group = _Group(
                positions=positions,
                clients=Probed.start(users[positions], items[positions, :width], labels[positions, :width]),
                calls=[self._calls(axis, point, bounds[positions]) for point in self.probing.axes[axis]],
                sent=self.probing.sent(table, generator),
                generator=generator,
            )
            groups.append(group)
        return groups

    def _calls(self, axis: str, point: float, bounds: Tensor) -> Tensor:
        """``(V,)`` number of calls of each client from the start of the campaign to a point."""
        if axis == "interactions":
            return torch.full_like(bounds, point)
        return (point * bounds).ceil().clamp(min=1)

    def _together(self, cohort: Cohort) -> Answered:
        """The messages of all groups, in the order of the cohort."""
        items = cohort.rows[ITEM_EMBEDDING]
        labels = cohort.examples["label"]
        dim = self._groups[0].sent.shape[1]
        users = torch.zeros(len(items), dim, dtype=torch.float64)
        updates = torch.zeros(*items.shape, dtype=torch.float64)
        sums = torch.zeros(*items.shape, dim, dtype=torch.float64)
        for group in self._groups:
            width = group.clients.items.shape[1]
            users[group.positions] = group.clients.users
            sums[group.positions, :width] = group.clients.sums
            updates[group.positions, :width] = group.clients.updates
        # Items with messages come first; the others look like padding.
        order = (updates == 0).byte().argsort(dim=1, stable=True)
        updates = updates.gather(1, order)
        items = items.gather(1, order)
        answering = dataclasses.replace(
            cohort,
            examples={"label": labels.gather(1, order)},
            rows={ITEM_EMBEDDING: torch.where(updates > 0, items, -1)},
        )
        answered = Answered(
            cohort=answering,
            users=users,
            sums=sums.gather(1, order[..., None].expand_as(sums)),
            updates=updates,
        )
        # Selecting all clients cuts columns that are padding for everybody.
        return answered.select(torch.arange(len(items)))
