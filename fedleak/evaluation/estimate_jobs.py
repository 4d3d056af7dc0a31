"""Estimates of a plan, computed by an engine before their scores are computed in one process."""

from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

import fedleak.evaluation.registry  # noqa: F401 - makes the variants of attacks, which a process reads back
from fedleak.evaluation.audit_plan import AuditPlan, Job, JobKey
from fedleak.evaluation.engines.engine import Engine
from fedleak.evaluation.estimate_store import EstimateStore
from fedleak.evaluation.evaluate import evaluate_recording, jobs_of
from fedleak.evaluation.execution import Execution
from fedleak.evaluation.time_budget import TimeBudget


@dataclass(frozen=True)
class Batch:
    """Jobs of a plan that one worker runs one after the other.

    Attributes:
        plan: the plan.
        keys: keys of the jobs.
        store: where their estimates are written.
        budget: time in which they have to end.
    """

    plan: AuditPlan
    keys: frozenset[JobKey]
    store: EstimateStore
    budget: TimeBudget


def estimate(
    plan: AuditPlan,
    store: EstimateStore,
    engine: Engine,
    *,
    machine: tuple[int, int] = (0, 1),
    budget: TimeBudget | None = None,
    progress: bool = True,
) -> None:
    """Writes the estimates of a plan, which `run_audit` then reads back and scores.

    They are bit for bit those of one process with one thread.

    An estimate that cannot be stored (see `EstimateStore`) is computed again by the audit.

    Args:
        plan: what is run.
        store: where the estimates are written.
        engine: who runs them.
        machine: ``(i, n)`` for every n-th batch from the i-th on, where n machines share the store.
        budget: time in which they have to end; None for no bound.
        progress: whether to show a progress bar over the batches.
    """
    first, machines = machine
    batches = in_batches(list(jobs_of(plan)), most=engine.parts * machines)[first::machines]
    work = [Batch(plan, keys, store, budget or TimeBudget(None)) for keys in batches]
    before = len(store)
    for _ in tqdm(engine.run(run_batch, work), total=len(work), desc="estimates", disable=not progress):
        pass  # a batch has written its estimates, and returns nothing
    store.made += len(store) - before


def in_batches(jobs: Sequence[Job], *, most: int) -> list[frozenset[JobKey]]:
    """Keys of jobs in some batches: jobs on one view together, unless there are fewer views than batches.

    Attacks on one view share what they compute, and reading a view takes time.
    """
    by_view: dict[tuple[int | None, int], list[JobKey]] = {}
    for job in jobs:
        by_view.setdefault((job.round, job.view), []).append(job.key)
    units = list(by_view.values())
    if len(units) < most:
        units = [[job.key] for job in jobs]
    # Dealt out in turn, so that batches are of about equal size.
    count = min(most, len(units))
    batches = []
    for number in range(count):
        keys: list[JobKey] = []
        for unit in units[number::count]:
            keys += unit
        batches.append(frozenset(keys))
    return batches


def run_batch(batch: Batch) -> None:
    """Writes the estimates of a batch of jobs."""
    execution = Execution(store=batch.store, budget=batch.budget, only=batch.keys, progress=False)
    evaluate_recording(batch.plan, execution)
