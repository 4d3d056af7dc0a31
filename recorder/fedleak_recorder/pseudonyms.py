"""Names of clients in a recording: pseudonyms, made with a secret key that no recording holds."""

import hmac
import os
import re
import secrets

from fedleak_recorder.errors import InputError

KEY_VARIABLE = "FEDLEAK_KEY"
"""Environment variable with the secret key of a training, in hexadecimal, for reproducible secret draws."""


def secret_key() -> bytes:
    """The secret key of a training: 256 random bits, or the value of `KEY_VARIABLE`.

    Pseudonyms, the order of messages and the noise of defences are drawn from it. It is in the checkpoint, for
    resuming, and in no recording.

    Raises:
        InputError: the variable is not a hexadecimal number of at least 128 bits.
    """
    key_text = os.environ.get(KEY_VARIABLE)
    if key_text is None:
        return secrets.token_bytes(32)
    if not re.fullmatch(r"([0-9a-fA-F]{2}){16,}", key_text):
        raise InputError(
            expected=f"{KEY_VARIABLE} of 32 hexadecimal digits or more, an even number of them",
            found=f"{len(key_text)} characters",
            way_out=f"Unset {KEY_VARIABLE} for a key of its own for each training, or make one: openssl rand -hex 32.",
        )
    return bytes.fromhex(key_text)


def pseudonym(client: str, key: bytes) -> int:
    """Pseudonym of a client, the same in every round.

    Args:
        client: name under which the server knows it.
        key: secret key, see `secret_key`; without it, whoever can guess the name could repeat the hash.
    """
    try:
        name = client.encode()
    except UnicodeEncodeError:
        shown_name = ascii(client)[:60]
        way_out = "Give the client another name; it is in no file of the recording."
        raise InputError(expected="a client's name that UTF-8 can encode", found=shown_name, way_out=way_out) from None
    # 62 bits: a pseudonym from 0, which int64 holds; among 10**6 clients two are equal with a probability of 1e-7.
    digest = hmac.digest(key, b"client:" + name, "sha256")
    return int.from_bytes(digest[:8], "big") >> 2


def run_name(key: bytes) -> str:
    """Name of a training, by which a continued recording is recognised; it does not reveal the key."""
    return hmac.digest(key, b"run", "sha256")[:16].hex()
