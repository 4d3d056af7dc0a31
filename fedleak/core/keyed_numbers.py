"""Public seeds by key, which need no generator of torch: see `fedleak.core.seeding`."""

import zlib

import numpy as np


def keyed_number(seed: int, purpose: str, *key: int) -> int:
    """Seed from 0 to 2**62 of the draws for one purpose and key.

    Args:
        seed: the run's public seed.
        purpose: a word that separates uses of the same key, e.g. ``"negatives"``.
        key: further non-negative integers, e.g. round and client.
    """
    state = np.random.SeedSequence((seed % 2**63, zlib.crc32(purpose.encode()), *key)).generate_state(2, np.uint32)
    return int(state[0]) << 31 ^ int(state[1])
