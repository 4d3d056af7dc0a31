"""Probing server: after honest rounds it calls the same clients repeatedly with item vectors of its choice.

References:
    B. London, "PAC Identifiability in Federated Personalization", 2020, Protocol 2 and Theorems 1 to 3.
"""

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from attacks.identifiability.bounds import Noisy, theorem_1, theorem_2, theorem_3, tolerance
from client.cohort import Cohort
from client.margin_losses import check_assumption_2
from modules.probing.clients import Answering, Probed, answer, answer_zeros
from protocol.errors import InputError
from protocol.ranges import OpenUnitInterval, PositiveFloat, PositiveInt, UnitInterval, check_fields
from protocol.seeding import generator_for
from protocol.view import ITEM_EMBEDDING

Probe = Literal["zeros", "low-rank", "small", "shuffled"]
SMALL = 0.01
"""Standard deviation of small random items; trained items have a norm of about 3."""
_AT_ONCE = 100
"""Clients whose answers are drawn from one generator."""


@dataclass(frozen=True, kw_only=True)
class Probing:
    """Behaviour of the server after its honest rounds; each further round is one point of a campaign.

    A round calls each client a number of times. Its recorded messages are sums of all answers since the start of the
    campaign, and the global model does not change. Every campaign starts from the private vectors after the last honest
    round, and its changes to them are not kept.

    Attributes:
        after: number of honest rounds.
        probe: item vectors that the server sends: ``zeros`` (Protocol 2); ``low-rank``, one random vector for all
            items; ``small`` random vectors; or ``shuffled``, the honest vectors under wrong item numbers.
        interactions: points of a campaign as numbers of calls T, ascending.
        of_bound: points of a second campaign as multiples of the theorem's T for each client, ascending.
        theorem: 1 for Protocol 1 without noise, 2 for Protocol 1, 3 for Protocol 3.
        tolerance: error epsilon that counts as success.
        delta: failure probability of the theorem.
        campaigns: number of repetitions.
    """

    after: PositiveInt = 200
    probe: Probe = "zeros"
    interactions: list[PositiveInt] = dataclasses.field(default_factory=list)
    of_bound: list[PositiveFloat] = dataclasses.field(default_factory=list)
    theorem: Literal[1, 2, 3] = 2
    tolerance: UnitInterval = 0.0
    delta: OpenUnitInterval = 0.05
    campaigns: PositiveInt = 1

    def __post_init__(self) -> None:
        """Checks the points.

        Raises:
            InputError: there is no point, points do not ascend, or `of_bound` has another probe than zeros.
        """
        check_fields(self)
        for name, points in self._axes.items():
            if any(now <= before for before, now in itertools.pairwise(points)) or any(now <= 0 for now in points):
                raise InputError(
                    expected=f"probing.{name} above 0 and ascending", found=str(points), way_out="Sort them."
                )
        if not self._axes or (self.of_bound and self.probe != "zeros"):
            raise InputError(
                expected="probing.interactions, or probing.of_bound with the probe zeros",
                found=f"{self.interactions} and {self.of_bound} with the probe {self.probe}",
                way_out="Name at least one number of interactions.",
            )

    @property
    def rounds(self) -> int:
        """Number of rounds of the whole training."""
        return self.after + self.campaigns * sum(map(len, self._axes.values()))

    @property
    def _axes(self) -> dict[str, list[Any]]:
        return {name: list(getattr(self, name)) for name in ("interactions", "of_bound") if getattr(self, name)}

    def point(self, round_number: int) -> tuple[int, str, int]:
        """Campaign, axis and position on the axis of a round."""
        axes = [(axis, place) for axis, points in self._axes.items() for place in range(len(points))]
        campaign, step = divmod(round_number - self.after, len(axes))
        return campaign, *axes[step]

    def values(self, axis: str) -> list[Any]:
        """Points of an axis."""
        return self._axes[axis]

    def settings(self) -> dict[int, dict[str, Any]]:
        """Setting columns of each probing round: its point, and the error that counts as success."""
        found: dict[int, dict[str, Any]] = {}
        for number in range(self.after, self.rounds):
            _, axis, place = self.point(number)
            found[number] = {axis: _plain(self._axes[axis][place]), "tolerance": _plain(self.tolerance)}
        return found

    def sent(self, table: Tensor, generator: torch.Generator) -> Tensor:
        """``(I, d)`` item vectors that the server sends instead of the honest `table`."""
        if self.probe == "zeros":
            return torch.zeros_like(table)
        if self.probe == "shuffled":
            return table[torch.randperm(len(table), generator=generator)]
        rows = 1 if self.probe == "low-rank" else len(table)
        draw = torch.randn(rows, table.shape[1], generator=generator, dtype=table.dtype)
        return (SMALL * draw).expand_as(table)

    def bounds(self, how: Answering, table: Tensor, users: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Number of interactions that the theorem requires for each client.

        Args:
            how: how clients answer.
            table: honest item vectors ``(I, d)``.
            users: private vectors ``(V, d)``.
            labels: ``(V, N)`` 1 for liked, 0 for not liked or padded.
            counts: ``(V,)`` numbers of labels.

        Returns:
            ``(V,)`` float64.
        """
        rates, table = labels.double().sum(1) / counts, table.double()
        if self.theorem == 1:
            return theorem_1(rates, batch=how.batch, delta=self.delta)
        noise = Noisy(
            scale=how.noise,
            step=how.learning_rate * check_assumption_2(how.loss),
            items=len(table),
            largest=float(table.norm(dim=1).max()),
        )
        tau = tolerance(users.double() @ table.T, self.tolerance)
        if self.theorem == 2:
            return theorem_2(rates, tau, noise, batch=how.batch, delta=self.delta)
        return theorem_3(rates, tau, counts, noise, delta=self.delta)

    def check(self, how: Answering) -> None:
        """Checks that the theorem applies to the clients.

        Raises:
            InputError: the loss violates Assumption 2, there is noise with Theorem 1, or the protocol does not match.
        """
        check_assumption_2(how.loss)
        protocol = "epochs" if self.theorem == 3 else "batches"
        if how.protocol != protocol or (self.theorem == 1 and how.noise):
            raise InputError(
                expected="theorem 1 without noise, 2 with local.updates, or 3 with local.epochs",
                found=f"theorem {self.theorem}, {how.protocol}, noise {how.noise:g}",
                way_out="Fix probing.theorem, or how clients train.",
            )
        if how.protocol == "epochs" and self.probe != "zeros":
            raise InputError(
                expected="the probe zeros with local.epochs", found=self.probe, way_out="Set probing.probe to zeros."
            )


def _plain(number: float) -> int | float:
    return int(number) if number == int(number) else number


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
        """Summed messages of the clients at the end of a round.

        Args:
            cohort: the called clients, the same in all probing rounds.
            table: honest item vectors ``(I, d)``.
            users: the clients' private vectors before the campaign ``(C, d)``.
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
            key = f"campaign-{axis}", campaign, int(cohort.clients[positions[0]])
            generator = generator_for(self.seed, *key)
            clients = Probed.start(users[positions], items[positions, :width], labels[positions, :width])
            calls = [self._calls(axis, point, bounds[positions]) for point in self.probing.values(axis)]
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
