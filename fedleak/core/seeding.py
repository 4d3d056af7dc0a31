"""Randomness by key: a draw depends on (seed, purpose, round, client), not on the order of draws."""

import hashlib

import numpy as np
import torch

from fedleak.core.keyed_numbers import keyed_number
from fedleak_recorder.pseudonyms import KEY_VARIABLE as KEY_VARIABLE
from fedleak_recorder.pseudonyms import secret_key as secret_key

PERSISTENT = 0
"""The round of draws that hold for all rounds."""
_WORDS = 624
"""32-bit words in the state of the Mersenne Twister, torch's CPU generator."""
_HEADER = 24
"""Bytes before them in `torch.Generator.get_state`."""
_FRESH = torch.Generator().manual_seed(0).get_state()


def generator_for(seed: int | bytes, purpose: str, *key: int) -> torch.Generator:
    """A CPU generator for one purpose and key.

    A public seed is for simulating the world. It sets 32 bits of the generator's state, all that
    ``torch.Generator.manual_seed`` keeps: among 100,000 keys one pair has the same stream. A secret key is for
    protecting clients: it sets the whole state of 19,937 bits from SHAKE-256, so that all streams differ and knowledge
    of the seed does not reproduce them. The stream is that of a Mersenne Twister, which is no stream cipher.

    Args:
        seed: the run's public seed, or a secret key (see `secret_key`).
        purpose: a word that separates uses of the same key, e.g. ``"negatives"``.
        key: further non-negative integers, e.g. round and client.
    """
    if not isinstance(seed, bytes):
        return torch.Generator().manual_seed(keyed_number(seed, purpose, *key))
    # A secret fills the whole state: manual_seed keeps 32 bits of it, which could be tried out.
    entropy = repr((seed, purpose, *map(int, key))).encode()
    words = np.frombuffer(hashlib.shake_256(entropy).digest(4 * _WORDS), dtype="<u4")
    state = _FRESH.clone()
    # The layout keeps each word in 64 bits. A fresh state generates its first numbers from all of the words.
    state_words = state[_HEADER : _HEADER + 8 * _WORDS].view(torch.int64)
    state_words.copy_(torch.from_numpy(words.astype(np.int64)))
    return torch.Generator().set_state(state)
