"""Randomness by key: a draw depends on (seed, purpose, round, client), never on the order of draws."""

import hashlib
import os
import re
import secrets
import zlib

import numpy as np
import torch

from protocol.errors import InputError

PERSISTENT = 0
"""The round to give for what is drawn once and holds over all rounds."""
KEY_VARIABLE = "FEDLEAK_KEY"
"""Environment variable with the secret key of a training, in hexadecimal: makes what is drawn in secret repeatable."""

_WORDS = 624
"""32-bit words in the state of the Mersenne Twister, which is torch's generator on a CPU."""
_HEADER = 24
"""Bytes before them in `torch.Generator.get_state`."""
_FRESH = torch.Generator().manual_seed(0).get_state()


def generator_for(seed: int | bytes, purpose: str, *key: int) -> torch.Generator:
    """A CPU generator for one purpose and key.

    A public seed is for what simulates the world. It sets 32 bits of the generator's state, which is all that
    ``torch.Generator.manual_seed`` keeps: of 100,000 keys one pair has the same stream. A secret key is for what
    protects a client: it sets the whole state of 19,937 bits from SHAKE-256, so that no two keys have the same stream,
    and who knows the seed cannot draw it again. The stream is a Mersenne Twister's: fit for statistics, and no stream
    cipher.

    Args:
        seed: the run's public seed, or a secret key (see `secret_key`).
        purpose: a word that keeps two uses of the same key apart, e.g. ``"negatives"``.
        key: further non-negative integers, e.g. round and client.
    """
    if isinstance(seed, bytes):
        return _of_whole_state(repr((seed, purpose, *map(int, key))).encode())
    entropy = (seed % 2**63, zlib.crc32(purpose.encode()), *key)
    state = np.random.SeedSequence(entropy).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 ^ int(state[1]))


def _of_whole_state(entropy: bytes) -> torch.Generator:
    words = np.frombuffer(hashlib.shake_256(entropy).digest(4 * _WORDS), dtype="<u4")
    state = _FRESH.clone()
    # The layout keeps each word in 64 bits. A fresh state makes its first block of numbers from all of the words.
    state[_HEADER : _HEADER + 8 * _WORDS].view(torch.int64).copy_(torch.from_numpy(words.astype(np.int64)))
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def secret_key() -> bytes:
    """The secret key of a training: 256 random bits, or what `KEY_VARIABLE` says.

    Pseudonyms, the order of messages and the noise of defences are drawn from it. It stands in the checkpoint, for a
    training that is resumed, and in no recording.

    Raises:
        InputError: the variable holds no hexadecimal number of 128 bits or more.
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
