"""Salted hashes of training examples of PyTorch, see `fedleak_recorder.record_hash`."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedleak_recorder import record_hash as hashing
from fedleak_recorder.record_hash import LENGTH as LENGTH
from fedleak_recorder.record_hash import RECORD_ORIGIN as RECORD_ORIGIN
from fedleak_recorder.record_hash import RECORD_STEP as RECORD_STEP
from fedleak_recorder.record_hash import SALT_LENGTH as SALT_LENGTH

Grid = tuple[Tensor, Tensor]
"""Step and origin ``(*shape)`` float64 of each number of a record."""


def record_bytes(records: Tensor, grid: Grid | None = None) -> list[bytes]:
    """Bytes of each record ``(N, *shape)`` at its own precision, see `fedleak_recorder.record_hash.record_bytes`."""
    own = None if grid is None else (grid[0].numpy(), grid[1].numpy())
    return hashing.record_bytes(records.detach().cpu().numpy(), own)


def record_hashes(records: Tensor, salt: Tensor, grid: Grid | None = None) -> Tensor:
    """``(N, 32)`` uint8 SHA-256 of a salt ``(16,)`` and each record ``(N, *shape)``, rounded to a grid."""
    own = None if grid is None else (grid[0].numpy(), grid[1].numpy())
    return torch.from_numpy(hashing.record_hashes(records.detach().cpu().numpy(), salt.cpu().numpy(), own))


def grid_of(truth: Mapping[str, Tensor], victim: int) -> Grid | None:
    """The grid of a client's records in the ground truth, None for that of 8-bit pixels."""
    return (truth[RECORD_STEP][victim], truth[RECORD_ORIGIN][victim]) if RECORD_STEP in truth else None
