"""Salted hashes of training examples of PyTorch, see `fedleak_recorder.record_hash`."""

from collections.abc import Mapping
from typing import Any

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
    return hashing.record_bytes(records.detach().cpu().numpy(), _as_arrays(grid))


def record_hashes(records: Tensor, salt: Tensor, grid: Grid | None = None) -> Tensor:
    """``(N, 32)`` uint8 SHA-256 of a salt ``(16,)`` and each record ``(N, *shape)``, rounded to a grid."""
    hashes = hashing.record_hashes(records.detach().cpu().numpy(), salt.cpu().numpy(), _as_arrays(grid))
    return torch.from_numpy(hashes)


def _as_arrays(grid: Grid | None) -> tuple[Any, Any] | None:
    if grid is None:
        return None
    step, origin = grid
    return step.numpy(), origin.numpy()


def grid_of(truth: Mapping[str, Tensor], victim: int) -> Grid | None:
    """The grid of a client's records in the ground truth, None for that of 8-bit pixels."""
    if RECORD_STEP not in truth:
        return None
    return truth[RECORD_STEP][victim], truth[RECORD_ORIGIN][victim]
