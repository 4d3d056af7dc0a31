"""Public seeds by key, which need no generator of torch: see `fedleak.core.seeding`."""

import zlib

import numpy as np


def keyed_number(seed: int, purpose: str, *key: int) -> int:
    """Seed from 0 to 2**63 - 1 of the draws for one purpose and key.

    Args:
        seed: the run's public seed.
        purpose: a word that separates uses of the same key, e.g. ``"negatives"``.
        key: further non-negative integers, e.g. round and client.
    """
    # The CRC makes a number of the purpose that is the same on all machines, which hash() is not.
    entropy = (seed % 2**63, zlib.crc32(purpose.encode()), *key)
    state = np.random.SeedSequence(entropy).generate_state(2, np.uint32)
    # Both words of 32 bits in 63: a seed is a signed word, so one bit of each overlaps.
    return int(state[0]) << 31 ^ int(state[1])
