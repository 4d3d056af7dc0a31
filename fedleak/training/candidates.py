"""Candidates of membership attacks: some of the clients' records, and others of the same classes that nobody holds."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeInt, PositiveInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.training.class_proportions import composition_counts


@dataclass(frozen=True, kw_only=True)
class CandidateOptions:
    """Options of the pool of candidates.

    Attributes:
        per_client: number of records of each client, drawn at random.
        outsiders: number of records that nobody holds, of the members' classes in the same proportions; None for as
            many as there are members.
    """

    per_client: PositiveInt
    outsiders: NonNegativeInt | None = None


@dataclass(frozen=True)
class CandidatePool:
    """Candidates, with the truth about them.

    Attributes:
        records: ``(M, *shape)`` records, as the clients' network gets them.
        labels: ``(M,)`` their classes.
        holders: ``(M,)`` number of the client that holds each, -1 for an outsider.
    """

    records: Tensor
    labels: Tensor
    holders: Tensor

    def select(self, order: Tensor) -> "CandidatePool":
        """The candidates at some positions, in this order."""
        return CandidatePool(self.records[order], self.labels[order], self.holders[order])

    def member(self, clients: Tensor) -> Tensor:
        """``(C, M)`` bool: whether each of some clients ``(C,)`` holds each candidate."""
        return self.holders == clients[:, None]


def draw_numbers(
    options: CandidateOptions,
    parts: Sequence[Tensor],
    rest: Tensor,
    labels: Tensor,
    *,
    classes: Sequence[str],
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Numbers of the candidates, and of the clients that hold them.

    Args:
        options: size of the pool.
        parts: numbers of the records of every client.
        rest: ``(R,)`` numbers of the records that nobody holds, nor another record of their group.
        labels: ``(N,)`` class of each record.
        classes: names of the classes.
        seed: seed of the draws.

    Returns:
        ``(M,)`` numbers and ``(M,)`` clients, -1 for an outsider; the members first.
    """
    generator = generator_for(seed, "candidates", PERSISTENT)
    least = min(len(part) for part in parts)
    expected = f"clients with the {options.per_client} records that candidates.per_client asks for"
    require(least >= options.per_client, expected, f"one with {least}", "Ask for fewer, or give clients more.")
    drawn_members = []
    for part in parts:
        order = torch.randperm(len(part), generator=generator)
        drawn_members.append(part[order[: options.per_client]])
    members = torch.cat(drawn_members)
    # Outsiders have the members' classes: as many of each, or in the same proportions.
    member_classes = labels[members].bincount(minlength=len(classes))
    total = len(members) if options.outsiders is None else options.outsiders
    outsider_classes = member_classes
    if total != len(members):
        proportions = (member_classes / member_classes.sum()).double()
        outsider_classes = composition_counts(proportions[None], total)[0]
    drawn_outsiders = []
    for number, count in enumerate(outsider_classes.tolist()):
        available = rest[labels[rest] == number]
        require(
            len(available) >= count,
            f"{count} records of class {classes[number]} that nobody holds, for candidates.outsiders",
            len(available),
            "Ask for fewer candidates, or give the clients fewer records (data.split).",
        )
        order = torch.randperm(len(available), generator=generator)
        drawn_outsiders.append(available[order[:count]])
    outsiders = torch.cat(drawn_outsiders)
    # Members are in the order of their clients, as many of each.
    holders = torch.arange(len(parts)).repeat_interleave(options.per_client)
    nobody = torch.full((len(outsiders),), -1)
    return torch.cat([members, outsiders]), torch.cat([holders, nobody])
