"""Which examples a client takes in which step, and what a random loss draws for them."""

import torch
from torch import Tensor

from datamodules.cohort import Cohort
from protocol.errors import InputError
from protocol.seeding import generator_for

DRAWS = "draws"
"""Field that a random loss is given: an int64 number of its own for each example in each step."""


def batch_schedule(
    cohort: Cohort, *, batch_size: int, epochs: int, seed: int, updates: int | None = None
) -> list[Tensor]:
    """The mini-batches of every client, drawn by the client's own key: shuffled anew in every epoch, or independently.

    Args:
        cohort: the clients.
        batch_size: examples in a batch; the last batch of an epoch may be smaller.
        epochs: passes over the examples.
        seed: the run's seed; the order depends on (seed, round, client) only.
        updates: instead of epochs, so many batches: without replacement within a batch, with it between batches.

    Returns:
        For each client ``(steps, batch_size)`` int64 positions of examples, padded with -1.

    Raises:
        InputError: with `updates`, a client has fewer examples than a batch.
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
    if batch_size > count:
        raise InputError(
            expected=f"clients of at least batch_size = {batch_size} examples",
            found=f"client {client} with {count}",
            way_out="Set a smaller local.batch_size, or leave such clients out.",
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
    """``(C,)`` int64 numbers from which each client's draws of the round follow, by the client's own key."""
    generators = [generator_for(seed, "draws", cohort.round, client) for client in cohort.clients.tolist()]
    numbers = [int(torch.randint(2**62, (), generator=generator)) for generator in generators]
    return torch.tensor(numbers, device=cohort.mask.device)


def step_draws(draws: Tensor | None, step: int, mask: Tensor) -> dict[str, Tensor]:
    """`DRAWS` of one step ``(C, N)``; nothing where the loss is not random.

    Args:
        draws: ``(C,)``, see `client_draws`.
        step: its number in the round.
        mask: ``(C, N)`` of the mini-batch.
    """
    if draws is None:
        return {}
    place = torch.arange(mask.shape[1], device=mask.device) + step * 2**32
    return {DRAWS: draws[:, None] + place}
