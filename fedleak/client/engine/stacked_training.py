"""Local training of chunks of stacked clients, for GPUs and small dense models."""

import functools

import torch
from torch import Tensor

from fedleak.client.engine.client_optimizers import build_optimizer
from fedleak.client.engine.clipped_batches import clipped_to_norm
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.fast.memory import BufferPool, FlatParameters
from fedleak.client.engine.private_gradients import private_gradients
from fedleak.client.engine.training_job import TrainingJob, loss_and_gradients, penalties_of, received_by, steps_of

_CHUNK_NUMBERS = {"cpu": 2**19, "cuda": 2**28}
"""Trained numbers of all clients of a chunk: in float32, 2 MiB on a CPU and 1 GiB on a GPU."""


def chunks_of(job: TrainingJob, device: torch.device) -> list[Tensor]:
    """Positions of the clients of each chunk, sorted by number of examples to reduce padding."""
    order = torch.argsort(job.cohort.counts, descending=True, stable=True)
    size = job.local.clients_per_chunk
    if size is not None:
        return list(torch.tensor_split(order, list(range(size, len(order), size))))
    # Every client has the dense parameters, and of tables as many rows as it has examples.
    dense = sum(value.numel() for name, value in job.public.items() if name not in job.cohort.rows)
    width = sum(job.public[name][0].numel() for name in job.cohort.rows)
    budget = _CHUNK_NUMBERS.get(device.type, _CHUNK_NUMBERS["cuda"])
    counts = job.cohort.counts.cpu()
    chunks = []
    start = 0
    while start < len(order):
        # The first client of a chunk has most examples, so it decides the padding of all.
        per_client = dense + width * int(counts[order[start]])
        size = max(1, budget // max(per_client, 1))
        chunks.append(order[start : start + size])
        start += size
    return chunks


def train_stacked(job: TrainingJob, positions: Tensor) -> None:
    """Trains one chunk of stacked clients, sorted by number of steps so that finished clients are a suffix."""
    if job.schedule is not None:
        steps = torch.tensor([job.schedule[i].shape[0] for i in positions.tolist()])
        positions = positions[torch.argsort(steps, descending=True, stable=True)]
    part = job.cohort.select(positions)
    received = received_by(job, part)
    private = {name: value[positions] for name, value in job.private.items()}
    trained = FlatParameters(
        {**received, **private},
        clients=len(positions),
        copy=lambda _, value: value.clone(),
        share=job.local.fast,
    )
    leaves = trained.leaves
    optimizer = build_optimizer(job.local, trained.owners)
    schedule = None if job.schedule is None else [job.schedule[i] for i in positions.tolist()]
    noise = [job.noise[i] for i in positions.tolist()] if job.noise else []
    buffers = BufferPool()
    elements = job.elements_of(positions)
    for examples, mask, finished in steps_of(part, job.local, schedule, job.draws_of(positions)):
        written = None
        if job.fast is not None:
            with torch.no_grad():
                written = job.fast.stacked(leaves, examples, mask, buffers)
        if noise:
            written = private_gradients(job.task, leaves, examples, mask, job.local, noise)
        penalties = penalties_of(job, {name: leaves[name] for name in received}, received, elements)
        loss = functools.partial(job.task.stacked_loss, leaves, examples, mask)
        losses, grads = loss_and_gradients(written, loss, penalties, leaves)
        grads = clipped_to_norm(grads, job.local.max_grad_norm, stacked=True)
        optimizer.step(trained.of_owners(grads, buffers))
        # Clients whose last step this is are a contiguous part; further steps of their chunk would change them.
        if finished:
            _store(job, positions, slice(min(finished), max(finished) + 1), received, leaves, losses.detach())


@torch.no_grad()
def _store(
    job: TrainingJob, positions: Tensor, finished: slice, received: Parameters, leaves: Parameters, losses: Tensor
) -> None:
    target = positions[finished].to(losses.device)
    for name, before in received.items():
        delta = leaves[name][finished] - before[finished]
        if name in job.cohort.rows:
            job.result.deltas[name][target, : delta.shape[1]] = delta
        else:
            job.result.deltas[name][target] = delta
    for name in job.private:
        job.result.private[name][target] = leaves[name][finished].detach()
    job.losses[target] = losses[finished]
