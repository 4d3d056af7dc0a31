"""The clients of one round, stacked and padded."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Cohort:
    """The clients of one round; tensors are stacked on a leading client dimension.

    Attributes:
        round: number of the round.
        clients: ``(C,)`` int64 client numbers.
        examples: by field, ``(C, N, ...)``, padded after each client's last example.
        mask: ``(C, N)`` True for real examples.
        rows: by row parameter, ``(C, R)`` int64 rows of that public table that a client uses, each once, padded with
            -1. Examples refer to rows by their position in this list.
        shared: tensors common to all clients of the cohort, to whose rows examples refer by position.
    """

    round: int
    clients: Tensor
    examples: dict[str, Tensor]
    mask: Tensor
    rows: dict[str, Tensor] = field(default_factory=dict)
    shared: dict[str, Tensor] = field(default_factory=dict)

    @property
    def counts(self) -> Tensor:
        """``(C,)`` number of examples of each client."""
        return self.mask.sum(1)

    def __len__(self) -> int:
        return int(self.clients.shape[0])

    def select(self, positions: Tensor) -> "Cohort":
        """The clients at `positions`, with the padding that they need."""
        mask = self.mask[positions]
        width = int(mask.sum(1).max()) if positions.numel() else 0
        rows = {name: _trim(ids[positions]) for name, ids in self.rows.items()}
        examples = {name: value[positions, :width] for name, value in self.examples.items()}
        return Cohort(self.round, self.clients[positions], examples, mask[:, :width], rows, self.shared)

    def share(self, rank: int, world_size: int) -> "Cohort":
        """The clients that `rank` trains; a client always has the same rank, so its private state stays there."""
        if world_size == 1:
            return self
        return self.select(torch.nonzero(self.clients % world_size == rank).flatten())


def _trim(ids: Tensor) -> Tensor:
    width = int((ids >= 0).sum(1).max()) if ids.shape[0] else 0
    return ids[:, :width]
