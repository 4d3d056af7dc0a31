"""Local training of all clients of a cohort from the same global model.

Two engines give equal deltas to float tolerance. *Vectorized*: chunks of clients stacked on a leading dimension, for
GPUs and small dense models. *Sequential*: one client after another, in parallel threads, for convolutions on a CPU.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor

from fedleak.client.cohort import Cohort
from fedleak.client.engine.batches import batch_schedule, client_draws
from fedleak.client.engine.fast.memory import keep_freed_memory
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.private_gradients import check_private
from fedleak.client.engine.sequential_training import descend_one, descends, train_one
from fedleak.client.engine.stacked_training import chunks_of, train_stacked
from fedleak.client.engine.task import StackedTask, Task
from fedleak.client.engine.training_job import TrainingJob, own_elements
from fedleak.core.errors import require
from fedleak.core.progress import report_clients
from fedleak.core.seeding import generator_for
from fedleak.defenses.base import Defense, Update


def train_clients(
    task: Task,
    public: Mapping[str, Tensor],
    private: Mapping[str, Tensor],
    cohort: Cohort,
    local: LocalTraining,
    *,
    seed: int,
    noise_key: int | bytes | None = None,
    defenses: Sequence[Defense] = (),
    spent: Update | None = None,
) -> Update:
    """Update of a cohort after local training of any task; see `fedleak.client.algorithm.DescentAlgorithm.train`."""
    schedule = None
    if local.batch_size is not None:
        schedule = batch_schedule(cohort, local, seed=seed)
    elements = own_elements(public, cohort.rows, len(cohort)) if defenses else {}
    losses = torch.zeros(len(cohort), device=cohort.mask.device)
    result = _empty_result(public, private, cohort, losses, spent if local.fast else None)
    draws = client_draws(cohort, seed=seed) if task.random else None
    fast = task.fast() if local.fast else None
    # A real client draws its noise with a key of its own, which is not the public seed of batches.
    key = seed if noise_key is None else noise_key
    noise = None
    changes = None
    if local.example_clip is not None:
        check_private(task, rows=bool(cohort.rows), private=bool(private))
        fast = None
        noise = _generators(cohort, key, "gradient noise", seed)
    if any(defense.changes_steps() for defense in defenses):
        _check_changed(local, defenses)
        fast = None
        changes = _generators(cohort, key, "changed steps", seed)
    job = TrainingJob(
        task=task,
        fast=fast,
        public=public,
        private=private,
        cohort=cohort,
        local=local,
        defenses=defenses,
        schedule=schedule,
        draws=draws,
        result=result,
        losses=losses,
        elements=elements,
        noise=noise or [],
        changes=changes or [],
    )
    _run_engine(job)
    return result


def _generators(cohort: Cohort, key: int | bytes, purpose: str, seed: int) -> list[torch.Generator]:
    """Source of each client's draws for a purpose in this round."""
    return [generator_for(key, purpose, seed, cohort.round, client) for client in cohort.clients.tolist()]


def _run_engine(job: TrainingJob) -> None:
    """Trains the clients, stacked or one after another."""
    device = next(iter(job.public.values())).device
    stacks = isinstance(job.task, StackedTask) or device.type != "cpu"
    engine = job.local.engine
    if engine == "vectorized" or (engine == "auto" and stacks and not job.changes):
        _run(job, train_stacked, chunks_of(job, device), device)
        return
    # Clients with most examples first, so that no thread starts a long one when the others are done.
    order = torch.argsort(job.cohort.counts, descending=True).tolist()
    train = descend_one if descends(job) else train_one
    _run(job, train, [torch.tensor([client]) for client in order], device)


def _check_changed(local: LocalTraining, defenses: Sequence[Defense]) -> None:
    """Checks that one client after another can make steps that defences change.

    Raises:
        InputError: the engine is the vectorized one, or examples are clipped.
    """
    names = ", ".join(type(defense).__name__ for defense in defenses if defense.changes_steps())
    require(
        local.engine != "vectorized" and local.example_clip is None,
        f"for {names}, local.engine auto or sequential, and no local.example_clip",
        f"{local.engine}, example_clip {local.example_clip}",
        "Leave both out, or the defence.",
    )


def _empty_result(
    public: Mapping[str, Tensor], private: Mapping[str, Tensor], cohort: Cohort, losses: Tensor, spent: Update | None
) -> Update:
    clients = len(cohort)
    deltas = {}
    for name, value in public.items():
        rows = cohort.rows.get(name)
        old = None if spent is None else spent.deltas.get(name)
        if rows is None:
            deltas[name] = _memory(old, value, (clients, *value.shape))
        else:
            # Padding after a client's rows is written by no one, so it is zeroed here.
            deltas[name] = _memory(old, value, (clients, rows.shape[1], *value.shape[1:])).zero_()
    idle = torch.nonzero(cohort.counts == 0).flatten()
    if len(idle):
        # No training writes to these rows.
        for delta in deltas.values():
            delta[idle] = 0
    trained_private = {}
    for name, value in private.items():
        trained_private[name] = value.clone(memory_format=torch.contiguous_format)
    return Update(
        deltas,
        dict(cohort.rows),
        clients=cohort.clients,
        private=trained_private,
        losses=losses,
    )


def _memory(old: Tensor | None, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Uninitialised tensor of a shape, in the memory of an old one if that is large enough."""
    if old is None or old.shape[1:] != shape[1:] or len(old) < shape[0]:
        return like.new_empty(shape)
    if old.dtype == like.dtype and old.device == like.device:
        if old.dtype != like.dtype or old.device != like.device:
            return like.new_empty(shape)
        return old[: shape[0]]
    return like.new_empty(shape)


def _run(
    job: TrainingJob, train: Callable[[TrainingJob, Tensor], None], parts: list[Tensor], device: torch.device
) -> None:
    """Trains the parts, on a CPU in parallel threads, because torch releases the interpreter lock."""
    threads = min(job.local.threads or torch.get_num_threads() or os.cpu_count() or 1, len(parts))
    if device.type == "cpu" and job.local.fast:
        keep_freed_memory()
    if device.type != "cpu" or threads <= 1:
        for part in parts:
            train(job, part)
            report_clients(len(part))
        return
    with _one_thread_each(), ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        # Reading the results raises exceptions of the threads.
        for part, _ in zip(parts, pool.map(lambda part: train(job, part), parts), strict=True):
            report_clients(len(part))


@contextmanager
def _one_thread_each() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
