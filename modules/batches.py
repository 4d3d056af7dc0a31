"""Which examples a client takes in which step."""

import torch
from torch import Tensor

from datamodules.cohort import Cohort
from datamodules.keys import generator_for


def batch_schedule(cohort: Cohort, *, batch_size: int, epochs: int, seed: int) -> list[Tensor]:
    """The mini-batches of every client, shuffled anew in every epoch by the client's own key.

    Args:
        cohort: the clients.
        batch_size: examples in a batch; the last batch of an epoch may be smaller.
        epochs: passes over the examples.
        seed: the run's seed; the order depends on (seed, round, client) only.

    Returns:
        For each client ``(steps, batch_size)`` int64 positions of examples, padded with -1.
    """
    return [
        _client_schedule(int(count), batch_size, epochs, generator_for(seed, "batches", cohort.round, int(client)))
        for client, count in zip(cohort.clients, cohort.counts, strict=True)
    ]


def _client_schedule(count: int, batch_size: int, epochs: int, generator: torch.Generator) -> Tensor:
    steps = -(-count // batch_size)
    schedule = torch.full((epochs, steps * batch_size), -1, dtype=torch.int64)
    for epoch in range(epochs):
        schedule[epoch, :count] = torch.randperm(count, generator=generator)
    return schedule.view(epochs * steps, batch_size)
