"""The clients of one round, stacked and padded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


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
        # Padding is cut after the longest of the chosen clients.
        width = int(mask.sum(1).max()) if positions.numel() else 0
        rows = {name: _trim(ids[positions]) for name, ids in self.rows.items()}
        examples = {name: value[positions, :width] for name, value in self.examples.items()}
        return Cohort(
            round=self.round,
            clients=self.clients[positions],
            examples=examples,
            mask=mask[:, :width],
            rows=rows,
            shared=self.shared,
        )

    def share(self, rank: int, world_size: int) -> "Cohort":
        """The clients that `rank` trains; a client always has the same rank, so its private state stays there."""
        if world_size == 1:
            return self
        return self.select(torch.nonzero(self.clients % world_size == rank).flatten())


def padded_cohort(
    round_number: int, clients: Tensor, parts: Sequence[Tensor], fields: Callable[[Tensor], dict[str, Tensor]]
) -> Cohort:
    """Cohort of clients with the examples of the numbers `parts`; the fields ``(C, N, ...)`` are padded with 0."""
    numbers = pad_sequence(list(parts), batch_first=True, padding_value=-1)
    mask = numbers >= 0
    examples = {}
    for name, flat_values in fields(numbers.clamp(min=0).flatten()).items():
        values = flat_values.reshape(*numbers.shape, *flat_values.shape[1:])
        values[~mask] = 0
        examples[name] = values
    return Cohort(round_number, clients, examples, mask)


def _trim(ids: Tensor) -> Tensor:
    width = int((ids >= 0).sum(1).max()) if ids.shape[0] else 0
    return ids[:, :width]
