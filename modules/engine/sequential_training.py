"""Local training of one client after another: for convolutions on a CPU."""

from collections.abc import Mapping

import torch
from torch import Tensor

from defenses.base import Defense
from modules.engine.client_optimizers import build_optimizer
from modules.engine.fast.buffer_pool import BufferPool
from modules.engine.fast.flat_parameters import FlatParameters
from modules.engine.fast.manual_backward import Descent
from modules.engine.tasks import Parameters, WrittenTask
from modules.engine.training_job import TrainingJob, autograd_gradients, penalties_of, received_by, steps_of


def train_one(job: TrainingJob, position: Tensor) -> None:
    """Trains one client on plain parameters; images and kernels channels-last, which a CPU likes."""
    client = int(position[0])
    part = job.cohort.select(position)
    received = {name: _channels_last(value[0]) for name, value in received_by(job, part).items()}
    private = {name: value[client] for name, value in job.private.items()}
    trained = FlatParameters({**received, **private}, 1, lambda name, value: _copy(job, client, name, value))
    optimizer, buffers = build_optimizer(job.local, trained.owners), BufferPool()
    written = job.task if isinstance(job.task, WrittenTask) and job.task.written else None
    schedule = None if job.schedule is None else [job.schedule[client]]
    loss, elements = torch.zeros(()), job.elements_of(position)
    for examples, mask, _ in steps_of(part, job.local, schedule, job.draws_of(position)):
        own = {name: _channels_last(value[0]) for name, value in examples.items()}
        loss, grads = _gradients(job, written, trained.leaves, received, own, mask[0], elements)
        optimizer.step(trained.of_owners(grads, buffers))
    _finish(job, client, received, trained.leaves, loss.detach())


def _gradients(
    job: TrainingJob,
    written: WrittenTask | None,
    leaves: Parameters,
    received: Parameters,
    examples: Parameters,
    mask: Tensor,
    elements: Mapping[str, Tensor],
) -> tuple[Tensor, Parameters]:
    """Loss of one client and the gradient of every leaf."""
    with torch.no_grad():
        found = None if written is None else written.client_gradient(leaves, examples, mask)
    penalty: Tensor | float = 0.0
    if job.defenses:
        stacked = {name: leaves[name][None] for name in received}
        before = {name: value[None] for name, value in received.items()}
        penalty = torch.as_tensor(penalties_of(job, stacked, before, elements)).sum()
    if found is None:
        loss = job.task.client_loss(leaves, examples, mask) + penalty
        return loss, autograd_gradients(loss, leaves)
    loss, grads = found
    if isinstance(penalty, Tensor) and penalty.requires_grad:
        loss = loss + penalty.detach()
        grads = {name: grads[name] + extra for name, extra in autograd_gradients(penalty, leaves).items()}
    return loss, grads


def descends(job: TrainingJob) -> bool:
    """Whether clients do nothing but go down a written gradient, so that each step may write over the parameters."""
    local = job.local
    plain = local.optimizer == "sgd" and not local.momentum and not local.weight_decay
    free = all(type(defense).penalty is Defense.penalty for defense in job.defenses)
    written = isinstance(job.task, WrittenTask) and job.task.written
    return plain and free and written and not job.private and not job.cohort.rows


@torch.no_grad()
def descend_one(job: TrainingJob, position: Tensor) -> None:
    """Trains one client by plain gradient descent; its first step starts from the model that all clients share."""
    assert isinstance(job.task, WrittenTask)
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
        loss = job.task.client_descent(step, own, mask[0])
        before = after
    for name, value in received.items():
        place = job.result.deltas[name][client]
        if steps > 1:
            torch.sub(after[name], value, out=place)
        elif steps == 1 and place.data_ptr() != after[name].data_ptr():
            place.copy_(after[name])
    job.result.losses[client] = loss


def _copy(job: TrainingJob, client: int, name: str, value: Tensor) -> Tensor:
    """A client's copy of a large parameter, where it can be in the memory that its delta will take."""
    if name in job.private or not value.is_contiguous():
        return value.clone()
    # `data` counts its own changes; a view would share its count with the clients that other threads train.
    return job.result.deltas[name][client][: len(value)].data.copy_(value)


@torch.no_grad()
def _finish(job: TrainingJob, client: int, received: Parameters, leaves: Parameters, loss: Tensor) -> None:
    for name, before in received.items():
        place = job.result.deltas[name][client].data
        torch.sub(leaves[name].detach(), before, out=place[: len(before)] if before.dim() else place)
    for name in job.private:
        job.result.private[name][client] = leaves[name].detach()
    job.result.losses[client] = loss


def _channels_last(value: Tensor) -> Tensor:
    return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value
