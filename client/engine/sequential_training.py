"""Local training of one client after another: for convolutions on a CPU."""

import functools
from collections.abc import Mapping

import torch
from torch import Tensor

from client.engine.client_optimizers import build_optimizer
from client.engine.fast.gradients import Descent, Parameters
from client.engine.fast.memory import BufferPool, FlatParameters
from client.engine.private_gradients import private_gradients
from client.engine.training_job import TrainingJob, autograd_gradients, penalties_of, received_by, steps_of
from defenses.base import Defense


def train_one(job: TrainingJob, position: Tensor) -> None:
    """Trains one client on unstacked parameters; images and kernels are channels-last, which is faster on a CPU."""
    client = int(position[0])
    part = job.cohort.select(position)
    received = {name: _channels_last(value[0]) for name, value in received_by(job, part).items()}
    private = {name: value[client] for name, value in job.private.items()}
    copy = functools.partial(_copy, job, client)
    trained = FlatParameters({**received, **private}, 1, copy, share=job.local.fast)
    optimizer, buffers = build_optimizer(job.local, trained.owners), BufferPool()
    schedule = None if job.schedule is None else [job.schedule[client]]
    loss, elements = torch.zeros(()), job.elements_of(position)
    for examples, mask, _ in steps_of(part, job.local, schedule, job.draws_of(position)):
        own = {name: _channels_last(value[0]) for name, value in examples.items()}
        loss, grads = _gradients(job, client, trained.leaves, received, own, mask[0], elements)
        optimizer.step(trained.of_owners(grads, buffers))
    _finish(job, client, received, trained.leaves, loss.detach())


def _gradients(
    job: TrainingJob,
    client: int,
    leaves: Parameters,
    received: Parameters,
    examples: Parameters,
    mask: Tensor,
    elements: Mapping[str, Tensor],
) -> tuple[Tensor, Parameters]:
    """Loss of one client and the gradient of every leaf."""
    with torch.no_grad():
        found = None if job.fast is None else job.fast.single(leaves, examples, mask)
    if job.local.example_clip is not None:
        found = _private(job, client, leaves, examples, mask)
    penalty: Tensor | float = 0.0
    if job.defenses:
        stacked = {name: leaves[name][None] for name in received}
        before = {name: value[None] for name, value in received.items()}
        penalty = torch.as_tensor(penalties_of(job, stacked, before, elements)).sum()
    if found is None:
        loss = job.task.loss(leaves, examples, mask) + penalty
        return loss, autograd_gradients(loss, leaves)
    loss, grads = found
    if isinstance(penalty, Tensor) and penalty.requires_grad:
        loss = loss + penalty.detach()
        grads = {name: grads[name] + extra for name, extra in autograd_gradients(penalty, leaves).items()}
    return loss, grads


def _private(
    job: TrainingJob, client: int, leaves: Parameters, examples: Parameters, mask: Tensor
) -> tuple[Tensor, Parameters]:
    own, one = ({name: value[None] for name, value in values.items()} for values in (leaves, examples))
    losses, grads = private_gradients(job.task, own, one, mask[None], job.local, [job.noise[client]])
    return losses[0], {name: value[0] for name, value in grads.items()}


def descends(job: TrainingJob) -> bool:
    """Whether clients run plain SGD with hand-written gradients, so that steps may overwrite the parameters."""
    local = job.local
    plain = local.optimizer == "sgd" and not local.momentum and not local.weight_decay
    free = all(type(defense).penalty is Defense.penalty for defense in job.defenses)
    written = job.fast is not None and job.fast.descends
    return plain and free and written and not job.private and not job.cohort.rows


@torch.no_grad()
def descend_one(job: TrainingJob, position: Tensor) -> None:
    """Trains one client by plain SGD; the first step reads the shared global model without a copy."""
    assert job.fast is not None
    client = int(position[0])
    part = job.cohort.select(position)
    received = {name: _channels_last(value) for name, value in job.public.items()}
    after = {
        name: job.result.deltas[name][client] if value.is_contiguous() else torch.empty_like(value)
        for name, value in received.items()
    }
    schedule = None if job.schedule is None else [job.schedule[client]]
    steps = job.local.epochs if schedule is None else len(schedule[0])
    before, loss = received, torch.zeros(())
    for examples, mask, _ in steps_of(part, job.local, schedule, None):
        own = {name: _channels_last(value[0]) for name, value in examples.items()}
        step = Descent(before, after, job.local.learning_rate, change_only=steps == 1)
        loss = job.fast.descend(step, own, mask[0])
        before = after
    for name, value in received.items():
        place = job.result.deltas[name][client]
        if steps > 1:
            torch.sub(after[name], value, out=place)
        elif steps == 1 and place.data_ptr() != after[name].data_ptr():
            place.copy_(after[name])
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
        place = job.result.deltas[name][client].data
        torch.sub(leaves[name].detach(), before, out=place[: len(before)] if before.dim() else place)
    for name in job.private:
        job.result.private[name][client] = leaves[name].detach()
    job.losses[client] = loss


def _channels_last(value: Tensor) -> Tensor:
    return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value
