"""Randomness by key: a draw depends on (seed, purpose, round, client), never on the order of draws."""

import zlib

import numpy as np
import torch

PERSISTENT = 0
"""The round to give for what is drawn once and holds over all rounds."""


def generator_for(seed: int, purpose: str, *key: int) -> torch.Generator:
    """A CPU generator for one purpose and key.

    Args:
        seed: the run's seed.
        purpose: a word that keeps two uses of the same key apart, e.g. ``"negatives"``.
        key: further non-negative integers, e.g. round and client.
    """
    entropy = (seed % 2**63, zlib.crc32(purpose.encode()), *key)
    state = np.random.SeedSequence(entropy).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 ^ int(state[1]))
