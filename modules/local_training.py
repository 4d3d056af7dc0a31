"""The engine: trains every client of a cohort from the same global model, and returns what changed.

Two ways with one interface and equal deltas to float tolerance. *Vectorized*: chunks of clients stacked on a leading
dimension, for GPUs and small dense models. *Sequential*: one client after another, clients shared out over threads,
for convolutions on a CPU.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from datamodules.cohort import Cohort
from defenses.base import Defense
from modules.batches import batch_schedule, client_draws, step_draws
from modules.freed_memory import keep_freed_memory
from modules.local_optimizers import LocalTraining, build_optimizer
from modules.nets.chain_gradient import Descent

Parameters = dict[str, Tensor]
POSITION = "position"
"""Field the engine adds to a mini-batch: each example's place in the client's list; absent in full batches."""

_CHUNK_NUMBERS = {"cpu": 2**19, "cuda": 2**28}


class Task(Protocol):
    """What the engine trains: a loss, given once for one client and once for stacked clients."""

    @property
    def batched_by_hand(self) -> bool:
        """Whether `client_losses` is faster than vmap over `client_loss`; `auto` takes the vectorized engine then."""

    @property
    def random(self) -> bool:
        """Whether the loss draws at random, as dropout does: it is given `DRAWS` then, and must use no others."""

    def client_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Mean loss of one client: parameters ``shape``, examples ``(N, ...)``, mask ``(N,)`` -> scalar."""

    def client_losses(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Mean losses of stacked clients: ``(C, *shape)``, ``(C, N, ...)``, ``(C, N)`` -> ``(C,)``."""

    def client_gradients(
        self, parameters: Parameters, examples: Parameters, mask: Tensor
    ) -> tuple[Tensor, Parameters] | None:
        """`client_losses` and its gradients by every parameter, written out; None to leave them to autograd."""


@runtime_checkable
class WrittenTask(Protocol):
    """What a task may have besides: gradients of one client, which save what autograd does besides the numbers."""

    @property
    def written(self) -> bool:
        """Whether they are written out for this task's network."""

    def client_gradient(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> tuple[Tensor, Parameters]:
        """`Task.client_loss` and its gradients by every parameter."""

    def client_descent(self, step: Descent, examples: Parameters, mask: Tensor) -> Tensor:
        """One step of plain gradient descent from and to the parameters in `step`; returns `Task.client_loss`."""


@dataclass
class LocalResult:
    """What local training changed, in the cohort's order.

    Attributes:
        deltas: public parameters after minus before; ``(C, *shape)``, row parameters ``(C, R, *row_shape)``.
        private: private parameters after training, ``(C, *shape)``.
        losses: ``(C,)`` loss in each client's last step.
    """

    deltas: Parameters
    private: Parameters
    losses: Tensor


@dataclass(frozen=True)
class _Job:
    """A cohort to train and the buffers that take the result."""

    task: Task
    public: Mapping[str, Tensor]
    private: Mapping[str, Tensor]
    cohort: Cohort
    local: LocalTraining
    defenses: Sequence[Defense]
    schedule: list[Tensor] | None
    draws: Tensor | None
    result: LocalResult
    elements: dict[str, int] = field(default_factory=dict)


def train_clients(
    task: Task,
    public: Mapping[str, Tensor],
    private: Mapping[str, Tensor],
    cohort: Cohort,
    local: LocalTraining,
    *,
    seed: int,
    defenses: Sequence[Defense] = (),
    spent: LocalResult | None = None,
) -> LocalResult:
    """Trains the clients of a cohort.

    Args:
        task: the loss.
        public: the global model, ``shape`` each; parameters named in ``cohort.rows`` are whole tables.
        private: the clients' own parameters, ``(C, *shape)`` each.
        cohort: the clients and their examples.
        local: how they train.
        seed: the run's seed, for the order of mini-batches.
        defenses: defences whose penalty is part of the local loss.
        spent: an earlier result that nobody reads any more; its memory is used again where the shapes are the same,
            because fresh memory costs a page fault for every 4 KiB.
    """
    schedule = None
    if local.batch_size is not None:
        schedule = batch_schedule(
            cohort, batch_size=local.batch_size, epochs=local.epochs, seed=seed, updates=local.updates
        )
    elements = {name: value.numel() for name, value in public.items()}
    result = _empty_result(public, private, cohort, spent)
    draws = client_draws(cohort, seed=seed) if task.random else None
    job = _Job(task, public, private, cohort, local, defenses, schedule, draws, result, elements)
    device = next(iter(public.values())).device
    if _vectorized(job, device):
        _run(job, _train_stacked, _chunks(job, device), device)
    else:
        order = torch.argsort(cohort.counts, descending=True).tolist()
        _run(job, _descend_one if _descends(job) else _train_one, [torch.tensor([i]) for i in order], device)
    return result


def _vectorized(job: _Job, device: torch.device) -> bool:
    if job.local.engine != "auto":
        return job.local.engine == "vectorized"
    return job.task.batched_by_hand or device.type != "cpu"


def _empty_result(
    public: Mapping[str, Tensor], private: Mapping[str, Tensor], cohort: Cohort, spent: LocalResult | None
) -> LocalResult:
    clients = len(cohort)
    deltas = {}
    for name, value in public.items():
        rows = cohort.rows.get(name)
        shape = (clients, *value.shape) if rows is None else (clients, rows.shape[1], *value.shape[1:])
        old = None if spent is None else spent.deltas.get(name)
        deltas[name] = _memory(old, value, shape) if rows is None else _memory(old, value, shape).zero_()
    idle = torch.nonzero(cohort.counts == 0).flatten()
    for delta in deltas.values() if len(idle) else ():
        # Nobody will write to these.
        delta[idle] = 0
    kept = {name: value.clone(memory_format=torch.contiguous_format) for name, value in private.items()}
    losses = torch.zeros(clients, device=cohort.mask.device)
    return LocalResult(deltas, kept, losses)


def _memory(old: Tensor | None, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Memory of a shape: the old one, where that is as large or larger and nobody needs it."""
    if old is None or old.shape[1:] != shape[1:] or len(old) < shape[0]:
        return like.new_empty(shape)
    return old[: shape[0]] if old.dtype == like.dtype and old.device == like.device else like.new_empty(shape)


def _run(job: _Job, train: Callable[[_Job, Tensor], None], parts: list[Tensor], device: torch.device) -> None:
    """Trains the parts, side by side on a CPU: torch releases the interpreter's lock, so threads are enough."""
    threads = min(job.local.threads or torch.get_num_threads() or os.cpu_count() or 1, len(parts))
    if device.type == "cpu":
        keep_freed_memory()
    if device.type != "cpu" or threads <= 1:
        for part in parts:
            train(job, part)
        return
    with _one_thread_each(), ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        # Asking for the results raises what a thread raised.
        list(pool.map(lambda part: train(job, part), parts))


@contextmanager
def _one_thread_each() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _chunks(job: _Job, device: torch.device) -> list[Tensor]:
    """Positions of the clients of each chunk; clients of like size together, so that little is padded."""
    order = torch.argsort(job.cohort.counts, descending=True, stable=True)
    size = job.local.clients_per_chunk
    if size is not None:
        return list(torch.tensor_split(order, list(range(size, len(order), size))))
    dense = sum(v.numel() for n, v in job.public.items() if n not in job.cohort.rows)
    width = sum(job.public[n][0].numel() for n in job.cohort.rows)
    budget = _CHUNK_NUMBERS.get(device.type, _CHUNK_NUMBERS["cuda"])
    counts = job.cohort.counts.cpu()
    chunks, start = [], 0
    while start < len(order):
        per_client = dense + width * int(counts[order[start]])
        size = max(1, budget // max(per_client, 1))
        chunks.append(order[start : start + size])
        start += size
    return chunks


def _train_stacked(job: _Job, positions: Tensor) -> None:
    """Trains one chunk of stacked clients; sorted by steps, so that those who are done are a suffix."""
    if job.schedule is not None:
        steps = torch.tensor([job.schedule[i].shape[0] for i in positions.tolist()])
        positions = positions[torch.argsort(steps, descending=True, stable=True)]
    part = job.cohort.select(positions)
    received = _received(job, part)
    public = {name: value.clone().requires_grad_() for name, value in received.items()}
    private = {name: value[positions].clone().requires_grad_() for name, value in job.private.items()}
    leaves = {**public, **private}
    optimizer = build_optimizer(job.local, leaves.values())
    schedule = None if job.schedule is None else [job.schedule[i] for i in positions.tolist()]
    for examples, mask, finished in _steps(part, job.local, schedule, _chosen(job.draws, positions)):
        losses, grads = _gradients(job, leaves, received, examples, mask)
        for name, grad in grads.items():
            leaves[name].grad = grad
        optimizer.step()
        if finished:
            _store(job, positions, slice(min(finished), max(finished) + 1), received, leaves, losses.detach())


def _received(job: _Job, part: Cohort) -> Parameters:
    """What each client of the chunk receives: ``(C, *shape)``, and only its own rows of row parameters."""
    clients = len(part)
    return {
        name: value[part.rows[name].clamp(min=0)] if name in part.rows else value.expand(clients, *value.shape)
        for name, value in job.public.items()
    }


def _chosen(draws: Tensor | None, positions: Tensor) -> Tensor | None:
    return None if draws is None else draws[positions]


def _steps(
    part: Cohort, local: LocalTraining, schedule: list[Tensor] | None, draws: Tensor | None
) -> Iterator[tuple[Parameters, Tensor, list[int]]]:
    """Examples and mask of every step, and the clients for whom the step is the last."""
    everyone = list(range(len(part)))
    if schedule is None:
        for epoch in range(local.epochs):
            drawn = step_draws(draws, epoch, part.mask)
            yield {**part.examples, **drawn}, part.mask, everyone if epoch == local.epochs - 1 else []
        return
    last = [plan.shape[0] - 1 for plan in schedule]
    for step in range(max(last) + 1):
        idle = torch.full_like(schedule[0][0], -1)
        index = torch.stack([plan[step] if step < plan.shape[0] else idle for plan in schedule])
        index = index.to(part.mask.device)
        mask, index = index >= 0, index.clamp(min=0)
        client = torch.arange(len(part), device=index.device)[:, None]
        examples = {name: value[client, index] for name, value in part.examples.items()}
        examples |= {POSITION: index, **step_draws(draws, step, mask)}
        yield examples, mask, [i for i in everyone if last[i] == step]


def _gradients(
    job: _Job, leaves: Parameters, received: Parameters, examples: Parameters, mask: Tensor
) -> tuple[Tensor, Parameters]:
    """Losses of stacked clients and the gradient of every leaf."""
    penalties = _penalties(job, {name: leaves[name] for name in received}, received)
    with torch.no_grad():
        written = job.task.client_gradients(leaves, examples, mask)
    if written is None:
        losses = job.task.client_losses(leaves, examples, mask) + penalties
        return losses, _autograd(losses.sum(), leaves)
    losses, grads = written
    if isinstance(penalties, Tensor):
        losses = losses + penalties.detach()
        grads = {name: grads[name] + extra for name, extra in _autograd(penalties.sum(), leaves).items()}
    return losses, grads


def _autograd(loss: Tensor, leaves: Parameters) -> Parameters:
    """The gradient of every leaf, laid out as the leaf is."""
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if grad is None else grad.contiguous(memory_format=_format(leaf))
        for (name, leaf), grad in zip(leaves.items(), grads, strict=True)
    }


def _penalties(job: _Job, public: Parameters, received: Parameters) -> Tensor | float:
    """``(C,)`` what the clients' defences add to their losses, 0.0 where none adds."""
    terms = [d.penalty(public, received, job.elements) for d in job.defenses]
    return sum((term for term in terms if term is not None), start=0.0)


@torch.no_grad()
def _store(
    job: _Job, positions: Tensor, finished: slice, received: Parameters, leaves: Parameters, losses: Tensor
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
    job.result.losses[target] = losses[finished]


def _train_one(job: _Job, position: Tensor) -> None:
    """Trains one client on plain parameters; images and kernels channels-last, which a CPU likes."""
    part = job.cohort.select(position)
    received = {name: _channels_last(value[0]) for name, value in _received(job, part).items()}
    public = {name: _start(job, int(position[0]), name, value) for name, value in received.items()}
    private = {name: value[position[0]].clone().requires_grad_() for name, value in job.private.items()}
    leaves = {**public, **private}
    optimizer = build_optimizer(job.local, leaves.values())
    schedule = None if job.schedule is None else [job.schedule[int(position[0])]]
    loss = torch.zeros(())
    for examples, mask, _ in _steps(part, job.local, schedule, _chosen(job.draws, position)):
        own = {name: _channels_last(value[0]) for name, value in examples.items()}
        loss, grads = _gradients_of_one(job, leaves, received, own, mask[0])
        for name, grad in grads.items():
            leaves[name].grad = grad
        optimizer.step()
    _finish(job, int(position[0]), received, leaves, loss.detach())


def _gradients_of_one(
    job: _Job, leaves: Parameters, received: Parameters, examples: Parameters, mask: Tensor
) -> tuple[Tensor, Parameters]:
    """Loss of one client and the gradient of every leaf."""
    task = job.task
    written = task.client_gradient(leaves, examples, mask) if isinstance(task, WrittenTask) and task.written else None
    penalty: Tensor | float = 0.0
    if job.defenses:
        stacked = {name: leaves[name][None] for name in received}
        before = {name: value[None] for name, value in received.items()}
        penalty = torch.as_tensor(_penalties(job, stacked, before)).sum()
    if written is None:
        loss = task.client_loss(leaves, examples, mask) + penalty
        return loss, _autograd(loss, leaves)
    loss, grads = written
    if isinstance(penalty, Tensor) and penalty.requires_grad:
        loss = loss + penalty.detach()
        grads = {name: grads[name] + extra for name, extra in _autograd(penalty, leaves).items()}
    return loss, grads


def _descends(job: _Job) -> bool:
    """Whether clients do nothing but go down a written gradient, so that each step may write over the parameters."""
    local = job.local
    plain = local.optimizer == "sgd" and not local.momentum and not local.weight_decay
    free = all(type(defense).penalty is Defense.penalty for defense in job.defenses)
    written = isinstance(job.task, WrittenTask) and job.task.written
    return plain and free and written and not job.private and not job.cohort.rows


@torch.no_grad()
def _descend_one(job: _Job, position: Tensor) -> None:
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
    for examples, mask, _ in _steps(part, job.local, schedule, None):
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


def _start(job: _Job, client: int, name: str, received: Tensor) -> Tensor:
    """A client's copy of a parameter, where it can be in the memory that its delta will take."""
    place = job.result.deltas[name][client][: len(received)] if received.dim() else job.result.deltas[name][client]
    if received.is_contiguous():
        # `data` counts its own changes; a view would share its count with the clients that other threads train.
        return place.data.copy_(received).requires_grad_()
    return received.clone().requires_grad_()


@torch.no_grad()
def _finish(job: _Job, client: int, received: Parameters, leaves: Parameters, loss: Tensor) -> None:
    for name, before in received.items():
        place = job.result.deltas[name][client].data
        torch.sub(leaves[name].detach(), before, out=place[: len(before)] if before.dim() else place)
    for name in job.private:
        job.result.private[name][client] = leaves[name].detach()
    job.result.losses[client] = loss


def _channels_last(value: Tensor) -> Tensor:
    return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value


def _format(leaf: Tensor) -> torch.memory_format:
    return torch.contiguous_format if leaf.is_contiguous() else torch.channels_last
