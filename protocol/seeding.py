"""Randomness by key: a draw depends on (seed, purpose, round, client), not on the order of draws."""

import hashlib
import os
import re
import secrets
import zlib

import numpy as np
import torch

from protocol.errors import InputError

PERSISTENT = 0
"""The round of draws that hold for all rounds."""
KEY_VARIABLE = "FEDLEAK_KEY"
"""Environment variable with the secret key of a training, in hexadecimal, for reproducible secret draws."""

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
    if isinstance(seed, bytes):
        entropy = repr((seed, purpose, *map(int, key))).encode()
        words = np.frombuffer(hashlib.shake_256(entropy).digest(4 * _WORDS), dtype="<u4")
        whole = _FRESH.clone()
        # The layout keeps each word in 64 bits. A fresh state generates its first numbers from all of the words.
        whole[_HEADER : _HEADER + 8 * _WORDS].view(torch.int64).copy_(torch.from_numpy(words.astype(np.int64)))
        return torch.Generator().set_state(whole)
    state = np.random.SeedSequence((seed % 2**63, zlib.crc32(purpose.encode()), *key)).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 ^ int(state[1]))


def secret_key() -> bytes:
    """The secret key of a training: 256 random bits, or the value of `KEY_VARIABLE`.

    Pseudonyms, the order of messages and the noise of defences are drawn from it. It is in the checkpoint, for
    resuming, and in no recording.

    Raises:
        InputError: the variable is not a hexadecimal number of at least 128 bits.
    """
    given = os.environ.get(KEY_VARIABLE)
    if given is None:
        return secrets.token_bytes(32)
    if not re.fullmatch(r"([0-9a-fA-F]{2}){16,}", given):
        raise InputError(
            expected=f"{KEY_VARIABLE} of 32 hexadecimal digits or more, an even number of them",
            found=f"{len(given)} characters",
            way_out=f"Unset {KEY_VARIABLE} for a key of its own for each training, or make one: openssl rand -hex 32.",
        )
    return bytes.fromhex(given)
