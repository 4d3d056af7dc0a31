"""Mini-batches of each client's local steps, and the random numbers of a random loss."""

import torch
from torch import Tensor

from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.task import DRAWS
from fedleak.core.errors import require
from fedleak.core.seeding import generator_for


def batch_schedule(cohort: Cohort, local: LocalTraining, *, seed: int) -> list[Tensor]:
    """Mini-batches of every client, drawn with the client's key: shuffled in every epoch, or independent.

    Args:
        cohort: the clients.
        local: batch size, and number of epochs or of independent batches, each drawn without replacement.
        seed: the run's seed; the order depends only on (seed, round, client).

    Returns:
        For each client ``(steps, batch_size)`` int64 positions of examples, padded with -1.

    Raises:
        InputError: a client has fewer examples than an independent batch.
    """
    plans = []
    for client, count in zip(cohort.clients.tolist(), cohort.counts.tolist(), strict=True):
        generator = generator_for(seed, "batches", cohort.round, client)
        size = local.batch_size or max(count, 1)
        if local.updates is not None:
            require(
                size <= count,
                f"clients of at least batch_size = {size} examples",
                f"client {client} with {count}",
                "Set a smaller local.batch_size, or remove such clients.",
            )
            # The positions of the largest of uniform keys are a random subset: drawn without replacement.
            plans.append(torch.rand(local.updates, count, generator=generator).topk(size, dim=1).indices)
            continue
        # An epoch has a whole number of batches; what is left of the last one stays -1.
        batches = -(-count // size)
        plan = torch.full((local.epochs, batches * size), -1, dtype=torch.int64)
        for epoch in range(local.epochs):
            plan[epoch, :count] = torch.randperm(count, generator=generator)
        plans.append(plan.view(-1, size))
    return plans


def client_draws(cohort: Cohort, *, seed: int) -> Tensor:
    """``(C,)`` int64 seeds of each client's draws in the round, drawn with the client's key."""
    generators = [generator_for(seed, "draws", cohort.round, client) for client in cohort.clients.tolist()]
    numbers = [int(torch.randint(2**62, (), generator=generator)) for generator in generators]
    return torch.tensor(numbers, device=cohort.mask.device)


def step_draws(draws: Tensor | None, step: int, mask: Tensor) -> dict[str, Tensor]:
    """`DRAWS` of one step ``(C, N)`` from ``draws (C,)`` of `client_draws`; empty if the loss is not random."""
    if draws is None:
        return {}
    # Steps are 2^32 apart, so that no two examples of two steps have the same number.
    numbers = torch.arange(mask.shape[1], device=mask.device) + step * 2**32
    return {DRAWS: draws[:, None] + numbers}
