"""Loader of cohorts, one item per round, which may be built in processes of their own."""

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial

from lightning.fabric.utilities.seed import pl_worker_init_function
from torch.utils.data import DataLoader, Dataset, Sampler

from fedleak.client.cohort import Cohort
from fedleak.core.signals import end_with_parent


def round_loader(cohort: Callable[[int], Cohort], *, start: int, end: int | None, processes: int) -> DataLoader[Cohort]:
    """Cohorts of the rounds from `start` on, before `end` if there is one.

    Args:
        cohort: gives the cohort of a round.
        start: first round.
        end: round before which the rounds end, None for none.
        processes: processes that build the next cohorts, 0 for this one.
    """
    begin_worker = None
    if processes:
        begin_worker = partial(_begin_worker, os.getpid())
    return DataLoader(
        _Rounds(cohort),
        sampler=_RoundNumbers(start, end),
        batch_size=None,
        num_workers=processes,
        persistent_workers=processes > 0,
        worker_init_fn=begin_worker,
    )


def _begin_worker(parent: int, worker: int) -> None:
    """Begins a process that loads data: it ends with its parent, also while it waits for room to put a cohort."""
    end_with_parent(parent)
    if os.environ.get("PL_SEED_WORKERS") == "1":  # what Lightning does where a loader has no such function
        pl_worker_init_function(worker)


class _Rounds(Dataset[Cohort]):
    def __init__(self, cohort: Callable[[int], Cohort]) -> None:
        self.cohort = cohort

    def __getitem__(self, round_number: int) -> Cohort:
        return self.cohort(round_number)


class _RoundNumbers(Sampler[int]):
    """Round numbers up to `end`, if there is one; without a length, so that any ``val_check_interval`` is valid."""

    def __init__(self, start: int, end: int | None) -> None:
        self.start = start
        self.end = end

    def __iter__(self) -> Iterator[int]:
        if self.end is None:
            return itertools.count(self.start)
        return iter(range(self.start, self.end))
