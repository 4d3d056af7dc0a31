"""Mini-batches and dropout that draw from a given generator, never from the global one."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def random_batches(data: TensorDataset, size: int, generator: torch.Generator) -> DataLoader[Any]:
    """Batches in an order that is drawn anew in every epoch; rows are taken together, not one by one."""
    sampler = BatchSampler(RandomSampler(data, generator=generator), size, drop_last=False)
    # Without a generator of its own the loader draws from the global one.
    return DataLoader(data, sampler=sampler, batch_size=None, generator=torch.Generator())


def dropped(values: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Dropout: each number zero with probability `rate`, the others larger by as much."""
    kept = torch.rand(values.shape, generator=generator) >= rate
    return values * kept.to(values) / (1 - rate)
