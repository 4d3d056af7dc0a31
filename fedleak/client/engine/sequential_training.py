"""Local training of one client after another: for convolutions on a CPU."""

import functools

import torch
from torch import Tensor

from fedleak.client.engine.client_optimizers import build_optimizer
from fedleak.client.engine.clipped_batches import clipped_to_norm
from fedleak.client.engine.fast.gradients import Descent, Parameters
from fedleak.client.engine.fast.memory import BufferPool, FlatParameters
from fedleak.client.engine.private_gradients import private_gradients
from fedleak.client.engine.training_job import (
    TrainingJob,
    defended_step,
    loss_and_gradients,
    penalties_of,
    received_by,
    steps_of,
)
from fedleak.defenses.base import Defense


def train_one(job: TrainingJob, position: Tensor) -> None:
    """Trains one client on unstacked parameters; images and kernels are channels-last, which is faster on a CPU."""
    client = int(position[0])
    part = job.cohort.select(position)
    received = {name: _channels_last(value[0]) for name, value in received_by(job, part).items()}
    private = {name: value[client] for name, value in job.private.items()}
    copy = functools.partial(_copy, job, client)
    trained = FlatParameters({**received, **private}, 1, copy, share=job.local.fast)
    leaves = trained.leaves
    optimizer = build_optimizer(job.local, trained.owners)
    buffers = BufferPool()
    schedule = None if job.schedule is None else [job.schedule[client]]
    loss = torch.zeros(())
    elements = job.elements_of(position)
    for examples, mask, _ in steps_of(part, job.local, schedule, job.draws_of(position)):
        batch = {name: _channels_last(value[0]) for name, value in examples.items()}
        step, batch = defended_step(job, leaves, batch, mask[0], client)
        written = _written_gradients(job, client, leaves, batch, mask)
        penalty: Tensor | float = 0.0
        if job.defenses:
            public = {name: leaves[name] for name in received}
            penalty = torch.as_tensor(penalties_of(job, _stacked(public), _stacked(received), elements)).sum()
        objective = functools.partial(job.task.loss, leaves, batch, mask[0])
        loss, grads = loss_and_gradients(written, objective, penalty, leaves)
        if step is not None:
            for defense in job.defenses:
                grads = defense.change_gradients(step, grads)
        grads = clipped_to_norm(grads, job.local.max_grad_norm, stacked=False)
        optimizer.step(trained.of_owners(grads, buffers))
    _finish(job, client, received, leaves, loss.detach())


def _written_gradients(
    job: TrainingJob, client: int, leaves: Parameters, batch: Parameters, mask: Tensor
) -> tuple[Tensor, Parameters] | None:
    """Loss and gradients of one client that need no autograd here: hand-written or private ones; None for autograd."""
    if job.noise:
        # DP-SGD is written for stacked clients; this one is a stack of one.
        losses, gradients = private_gradients(
            job.task,
            _stacked(leaves),
            _stacked(batch),
            mask,
            job.local,
            [job.noise[client]],
        )
        return losses[0], {name: value[0] for name, value in gradients.items()}
    if job.fast is None:
        return None
    with torch.no_grad():
        return job.fast.single(leaves, batch, mask[0])


def _stacked(values: Parameters) -> Parameters:
    return {name: value[None] for name, value in values.items()}


def descends(job: TrainingJob) -> bool:
    """Whether clients run plain SGD with hand-written gradients, so that steps may overwrite the parameters."""
    no_penalty = all(type(defense).penalty is Defense.penalty for defense in job.defenses)
    written = job.fast is not None and job.fast.descends
    return job.local.plain_sgd and no_penalty and written and not job.private and not job.cohort.rows


@torch.no_grad()
def descend_one(job: TrainingJob, position: Tensor) -> None:
    """Trains one client by plain SGD; the first step reads the shared global model without a copy."""
    assert job.fast is not None
    client = int(position[0])
    part = job.cohort.select(position)
    received = {name: _channels_last(value) for name, value in job.public.items()}
    # The parameters after a step are written where the delta belongs, unless its layout differs.
    after = {}
    for name, value in received.items():
        if value.is_contiguous():
            after[name] = job.result.deltas[name][client]
        else:
            after[name] = torch.empty_like(value)
    schedule = None if job.schedule is None else [job.schedule[client]]
    steps = job.local.epochs if schedule is None else len(schedule[0])
    before = received
    loss = torch.zeros(())
    for examples, mask, _ in steps_of(part, job.local, schedule, None):
        batch = {name: _channels_last(value[0]) for name, value in examples.items()}
        # With a single step, the change itself is written, and nothing is left to subtract.
        step = Descent(before, after, job.local.learning_rate, change_only=steps == 1)
        loss = job.fast.descend(step, batch, mask[0])
        before = after
    for name, value in received.items():
        delta = job.result.deltas[name][client]
        if steps > 1:
            torch.sub(after[name], value, out=delta)
        elif steps == 1 and delta.data_ptr() != after[name].data_ptr():
            delta.copy_(after[name])
    job.losses[client] = loss


def _copy(job: TrainingJob, client: int, name: str, value: Tensor) -> Tensor:
    """Client's copy of a large parameter, if possible in the memory of its delta."""
    if name in job.private or not value.is_contiguous():
        return value.clone()
    # `data` has its own version counter; a view would share it with clients in other threads.
    return job.result.deltas[name][client][: len(value)].data.copy_(value)


@torch.no_grad()
def _finish(job: TrainingJob, client: int, received: Parameters, leaves: Parameters, loss: Tensor) -> None:
    for name, before in received.items():
        delta = job.result.deltas[name][client].data
        if before.dim():
            delta = delta[: len(before)]  # of a table, without the padding after the client's rows
        torch.sub(leaves[name].detach(), before, out=delta)
    for name in job.private:
        job.result.private[name][client] = leaves[name].detach()
    job.losses[client] = loss


def _channels_last(value: Tensor) -> Tensor:
    if value.dim() == 4:
        return value.contiguous(memory_format=torch.channels_last)
    return value
