"""Mini-batches of each client's local steps, and the random numbers of a random loss."""

import torch
from torch import Tensor

from client.cohort import Cohort
from client.engine.task import DRAWS
from protocol.errors import require
from protocol.seeding import generator_for


def batch_schedule(
    cohort: Cohort, *, batch_size: int, epochs: int, seed: int, updates: int | None = None
) -> list[Tensor]:
    """Mini-batches of every client, drawn with the client's key: shuffled in every epoch, or independent.

    Args:
        cohort: the clients.
        batch_size: examples in a batch; the last batch of an epoch may be smaller.
        epochs: passes over the examples.
        seed: the run's seed; the order depends only on (seed, round, client).
        updates: number of independent batches, each drawn without replacement; None for epochs.

    Returns:
        For each client ``(steps, batch_size)`` int64 positions of examples, padded with -1.

    Raises:
        InputError: a client has fewer examples than an independent batch.
    """
    plans = []
    for client, count in zip(cohort.clients.tolist(), cohort.counts.tolist(), strict=True):
        generator = generator_for(seed, "batches", cohort.round, client)
        if updates is None:
            plans.append(_client_schedule(count, batch_size, epochs, generator))
        else:
            plans.append(_independent_batches(client, count, batch_size, updates, generator))
    return plans


def _independent_batches(client: int, count: int, batch_size: int, updates: int, generator: torch.Generator) -> Tensor:
    require(
        batch_size <= count,
        f"clients of at least batch_size = {batch_size} examples",
        f"client {client} with {count}",
        "Set a smaller local.batch_size, or remove such clients.",
    )
    keys = torch.rand(updates, count, generator=generator)
    return keys.topk(batch_size, dim=1).indices


def _client_schedule(count: int, batch_size: int, epochs: int, generator: torch.Generator) -> Tensor:
    steps = -(-count // batch_size)
    schedule = torch.full((epochs, steps * batch_size), -1, dtype=torch.int64)
    for epoch in range(epochs):
        schedule[epoch, :count] = torch.randperm(count, generator=generator)
    return schedule.view(epochs * steps, batch_size)


def client_draws(cohort: Cohort, *, seed: int) -> Tensor:
    """``(C,)`` int64 seeds of each client's draws in the round, drawn with the client's key."""
    generators = [generator_for(seed, "draws", cohort.round, client) for client in cohort.clients.tolist()]
    numbers = [int(torch.randint(2**62, (), generator=generator)) for generator in generators]
    return torch.tensor(numbers, device=cohort.mask.device)


def step_draws(draws: Tensor | None, step: int, mask: Tensor) -> dict[str, Tensor]:
    """`DRAWS` of one step ``(C, N)``; empty if the loss is not random.

    Args:
        draws: ``(C,)`` from `client_draws`.
        step: number of the step in the round.
        mask: ``(C, N)`` mask of the mini-batch.
    """
    if draws is None:
        return {}
    place = torch.arange(mask.shape[1], device=mask.device) + step * 2**32
    return {DRAWS: draws[:, None] + place}
