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
        sums, updates = self.sums[positions, :width], self.updates[positions, :width]
        return Answered(cohort, self.users[positions], sums, updates)

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

    def answer_until(self, place: int, how: Answering, *, zeros: bool) -> None:
        more = self.calls[place] - (self.calls[place - 1] if place else 0)
        if zeros:
            answer_zeros(self.clients, how, interactions=more, generator=self.generator)
        else:
            answer(self.clients, self.sent, how, interactions=int(more[0]), generator=self.generator)


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
        campaign, axis, place = self.probing.point(cohort.round)
        first = 0 if self._last != cohort.round - 1 else place
        if first == 0:
            self._groups = self._begun(cohort, table.double(), users.double(), campaign, axis)
        for group in self._groups:
            for step in range(first, place + 1):
                group.answer_until(step, self.how, zeros=self.probing.probe == "zeros")
        self._last = cohort.round
        return self._together(cohort)

    def tables_sent(self) -> list[tuple[Tensor, Tensor]]:
        """Positions in the cohort and received item vectors of each group of clients."""
        return [(group.positions, group.sent) for group in self._groups]

    def _begun(self, cohort: Cohort, table: Tensor, users: Tensor, campaign: int, axis: str) -> list[_Group]:
        items, labels, counts = cohort.rows[ITEM_EMBEDDING], cohort.examples["label"], cohort.counts
        bounds = self.probing.bounds(self.how, table, users, labels, counts)
        groups = []
        for positions in torch.split(counts.argsort(stable=True), _AT_ONCE):
            width = int(counts[positions].max())
            generator = generator_for(self.seed, f"campaign-{axis}", campaign, int(cohort.clients[positions[0]]))
            clients = Probed.start(users[positions], items[positions, :width], labels[positions, :width])
            calls = [self._calls(axis, point, bounds[positions]) for point in self.probing.axes[axis]]
            groups.append(_Group(positions, clients, calls, self.probing.sent(table, generator), generator))
        return groups

    def _calls(self, axis: str, point: float, bounds: Tensor) -> Tensor:
        """``(V,)`` number of calls of each client from the start of the campaign to a point."""
        return torch.full_like(bounds, point) if axis == "interactions" else (point * bounds).ceil().clamp(min=1)

    def _together(self, cohort: Cohort) -> Answered:
        items, labels, dim = cohort.rows[ITEM_EMBEDDING], cohort.examples["label"], self._groups[0].sent.shape[1]
        users, updates = (torch.zeros(len(items), size, dtype=torch.float64) for size in (dim, items.shape[1]))
        sums = torch.zeros(*items.shape, dim, dtype=torch.float64)
        for group in self._groups:
            width = group.clients.items.shape[1]
            users[group.positions] = group.clients.users
            sums[group.positions, :width] = group.clients.sums
            updates[group.positions, :width] = group.clients.updates
        order = (updates == 0).byte().argsort(dim=1, stable=True)
        updates, items = updates.gather(1, order), items.gather(1, order)
        ours = dataclasses.replace(
            cohort,
            examples={"label": labels.gather(1, order)},
            rows={ITEM_EMBEDDING: torch.where(updates > 0, items, -1)},
        )
        whole = Answered(ours, users, sums.gather(1, order[..., None].expand_as(sums)), updates)
        return whole.select(torch.arange(len(items)))
