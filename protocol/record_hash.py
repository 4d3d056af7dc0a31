"""Salted hashes of training examples, which prove an exact reconstruction without a copy of anybody's data.

They do not hide a record that can be guessed: who has hash and salt, which lie next to each other in the ground truth,
confirms each guess. The salt prevents only tables made in advance, and that equal records are recognised as equal.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor

LENGTH = 32
"""Bytes of a hash."""
SALT_LENGTH = 16
"""Bytes of a salt."""
_LEVELS = 255
"""Steps per unit to which numbers are rounded, those of pixels in [0, 1] with 8 bits."""


def record_bytes(records: Tensor) -> list[bytes]:
    """Bytes of each record at its own precision.

    Args:
        records: ``(N, *shape)``. Numbers with a point are rounded to multiples of 1/255, e.g. pixels in [0, 1] to
            their 8 bits; of whole numbers, e.g. token numbers ``(N, L)``, trailing zeros (padding) are left out.
    """
    if records.is_floating_point():
        levels = (records.detach().double().cpu() * _LEVELS).round().to(torch.int32)
        return [row.tobytes() for row in levels.flatten(1).numpy()]
    rows = records.detach().cpu().to(torch.int64).flatten(1).numpy()
    return [np.trim_zeros(row, "b").tobytes() for row in rows]


def record_hashes(records: Tensor, salt: Tensor) -> Tensor:
    """``(N, 32)`` uint8 SHA-256 of a salt and each record.

    Args:
        records: ``(N, *shape)``, see `record_bytes`.
        salt: ``(16,)`` uint8, random for each client and round.
    """
    key = salt.cpu().numpy().tobytes()
    found = b"".join(hashlib.sha256(key + content).digest() for content in record_bytes(records))
    return torch.from_numpy(np.frombuffer(found, np.uint8).reshape(-1, LENGTH).copy())
