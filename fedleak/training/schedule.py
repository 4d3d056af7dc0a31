"""Which clients take part in a round."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.core.ranges import PositiveInt, check_fields


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How the clients of a round are drawn.

    Attributes:
        kind: ``uniform``: any clients, independently in each round. ``fixed-groups``: the clients are divided into
            groups of the size of a round once, and the groups take turns. ``batched``: they are divided into batches
            once, and each round draws whole batches, so that the clients of a batch always take part together; then
            sums of whole batches never separate them.
        batch: number of clients in a batch.

    References:
        [So23], section 5, for batched partial participation.
    """

    kind: Literal["uniform", "fixed-groups", "batched"] = "uniform"
    batch: PositiveInt = 1

    def __post_init__(self) -> None:
        check_fields(self)

    def draw(
        self, size: int, clients: int, round_number: int, draws: Callable[..., torch.Generator], *, once: int
    ) -> Tensor:
        """``(size,)`` ascending numbers of the clients of a round.

        Args:
            size: clients of a round.
            clients: number of all clients.
            round_number: the round.
            draws: gives the generator of a purpose and a round, by the secret key.
            once: number in place of the round for draws that are made once.

        Raises:
            InputError: groups or batches do not divide the clients.
        """
        if size == clients:
            return torch.arange(clients)
        if self.kind == "uniform":
            return torch.randperm(clients, generator=draws("cohort", round_number))[:size].sort().values
        # Groups have the size of a round, batches their own; both must divide all clients.
        unit = size if self.kind == "fixed-groups" else self.batch
        sizes = f"{clients} clients, {size} a round"
        way_out = "Set data.clients_per_round and data.schedule.batch."
        require(
            clients % unit == 0 and size % unit == 0, f"clients and rounds of whole groups of {unit}", sizes, way_out
        )
        # The same groups in every round, from a draw that is made once.
        groups = torch.randperm(clients, generator=draws("groups of clients", once)).reshape(-1, unit)
        if self.kind == "fixed-groups":
            return groups[round_number % len(groups)].sort().values
        chosen = torch.randperm(len(groups), generator=draws("cohort", round_number))[: size // unit]
        return groups[chosen].flatten().sort().values
