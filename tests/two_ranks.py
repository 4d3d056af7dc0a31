"""Two ranks of a training as two threads that meet in every reduction: quicker by far than starting two processes."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

Result = TypeVar("Result")


class TwoRanks:
    """Stands in for `torch.distributed` and for the strategy of Lightning's Trainer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.meeting = threading.Barrier(2, timeout=60)
        self.given: list[Any] = [None, None]
        self.own = threading.local()
        monkeypatch.setattr(torch.distributed, "all_reduce", self.all_reduce)

    def run(self, work: Callable[[int], Result]) -> list[Result]:
        """What `work` returns for rank 0 and rank 1."""

        def ranked(rank: int) -> Result:
            self.own.rank = rank
            try:
                return work(rank)
            except BaseException:
                self.meeting.abort()
                raise

        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(ranked, range(2)))

    def trainer(self, rank: int) -> Any:
        return SimpleNamespace(world_size=2, global_rank=rank, strategy=self)

    def both(self, value: Any) -> list[Any]:
        """What both ranks gave."""
        self.given[self.own.rank] = value
        self.meeting.wait()
        both = list(self.given)
        self.meeting.wait()
        return both

    def all_reduce(self, tensor: Tensor, op: object = torch.distributed.ReduceOp.SUM) -> None:
        values = self.all_gather(tensor)
        tensor.copy_(values.amax(0) if op == torch.distributed.ReduceOp.MAX else values.sum(0))

    def all_gather(self, tensor: Tensor, **_: Any) -> Tensor:
        return torch.stack(self.both(tensor.clone()))

    def broadcast(self, value: Any) -> Any:
        return self.both(value)[0]

    def barrier(self, name: str) -> None:
        self.both(name)
