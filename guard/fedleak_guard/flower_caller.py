"""Who calls the gateway: the one SuperNode of the site, by the signature that Flower puts on the time of each call."""

import base64
import binascii
import datetime
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_public_key
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import (
    bytes_to_public_key,
    public_key_to_bytes,
    uses_nist_ec_curve,
    verify_signature,
)

from fedleak_guard.gateway_log import RejectedError
from fedleak_recorder.errors import InputError
from fedleak_recorder.files import read_bounded

HEADERS = FLEET_HTTP_PUBLIC_KEY_HEADER, TIMESTAMP_HEADER, FLEET_HTTP_SIGNATURE_HEADER
"""Headers of a signed call: key, time, signature of the time."""
_LONGEST = 2048
"""Characters of a header; a key of 521 bits takes 360."""


class Caller:
    """The SuperNode that the gateway serves, known by its public key.

    A call counts as the SuperNode's if its time is signed with that key, is near the gateway's own, and was not used
    before. None of this is forwarded: the gateway signs its own calls with a key of its own.

    Args:
        key: public key of the SuperNode as PEM; None for that of the first call that is signed rightly.
        clock: seconds since 1970.

    Attributes:
        key: the same, None until it is known.
    """

    def __init__(self, key: bytes | None, clock: Callable[[], float]) -> None:
        self.key = key
        self._clock = clock
        self._lock = threading.Lock()
        self._used: dict[tuple[str, int], float] = {}
        """Signed times that were used, with the first number of their signature, and until when they are fresh."""

    def check(self, headers: Mapping[str, str]) -> bytes:
        """The key of a call that is the SuperNode's.

        Raises:
            RejectedError: it is not.
        """
        key, timestamp, signature = _parts(headers)
        # Another key is refused before anything is computed from what the caller sent.
        if self.key is not None and key != self.key:
            raise RejectedError("another key than the SuperNode's", 401)
        until = self._fresh_until(timestamp)
        number = _first_number(signature)
        if not verify_signature(_public_key(key), timestamp.encode("ascii"), signature):
            raise RejectedError("a wrong signature", 401)
        with self._lock:
            now = self._clock()
            # A time that is no longer fresh is refused anyway, so that few are remembered.
            self._used = {used: end for used, end in self._used.items() if end > now}
            # Whoever sees a signature (r, s) can make (r, -s) of it, so that r alone distinguishes two signatures.
            if (timestamp, number) in self._used:
                raise RejectedError("a signed time that was used before", 401)
            self._used[timestamp, number] = until
            if self.key is None:
                self.key = key
            elif key != self.key:  # another key came first, just now
                raise RejectedError("another key than the SuperNode's", 401)
        return key

    def _fresh_until(self, timestamp: str) -> float:
        """When a time stops to be accepted."""
        try:
            signed = datetime.datetime.fromisoformat(timestamp)
            exact = signed.isoformat() == timestamp and signed.utcoffset() == datetime.timedelta(0)
        except (ValueError, OverflowError):
            exact = False
        if not exact:
            raise RejectedError("a time of another form", 401)
        age = self._clock() - signed.timestamp()
        # Flower's own tolerances: clocks may differ by the first, and a call may take as long as the second.
        if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE:
            raise RejectedError("a time away from now", 401)
        return float(signed.timestamp() + TIMESTAMP_TOLERANCE)


def _parts(headers: Mapping[str, str]) -> tuple[bytes, str, bytes]:
    """Key, time and signature of a call, in the one form that Flower writes.

    Raises:
        RejectedError: one is missing, or has another form.
    """
    key, timestamp, signature = (headers.get(name, "") for name in HEADERS)
    if not (key and timestamp and signature):
        raise RejectedError("no signature", 401)
    if max(map(len, (key, timestamp, signature))) > _LONGEST:
        raise RejectedError("headers of another form", 401)
    return _from_base64(key), timestamp, _from_base64(signature)


def _from_base64(text: str) -> bytes:
    """Content of a header, which must be encoded in the one way that Flower encodes it."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RejectedError("headers of another form", 401) from None
    # The unused bits of a last character could hold anything.
    if base64.b64encode(content).decode() != text:
        raise RejectedError("headers of another form", 401)
    return content


def _first_number(signature: bytes) -> int:
    """The number r of a signature (r, s), which must be encoded in the one way that DER allows."""
    try:
        numbers = decode_dss_signature(signature)
    except ValueError:
        raise RejectedError("a signature of another form", 401) from None
    if encode_dss_signature(*numbers) != signature:
        raise RejectedError("a signature of another form", 401)
    return int(numbers[0])


def _public_key(key: bytes) -> EllipticCurvePublicKey:
    """A key on a curve that Flower takes, in the one form that Flower writes."""
    try:
        read = bytes_to_public_key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise RejectedError("a key of another form", 401) from None
    is_known = isinstance(read, EllipticCurvePublicKey) and uses_nist_ec_curve(read)
    if not is_known or public_key_to_bytes(read) != key:
        raise RejectedError("a key of another form", 401)
    return read


def read_public_key(path: Path) -> bytes:
    """A SuperNode's public key as Flower writes it, from a file of OpenSSH or PEM.

    Raises:
        InputError: it cannot be read, or is no key on a NIST curve.
    """
    content = read_bounded(path, most=2**16)
    way_out = "Make one with `ssh-keygen -t ecdsa -b 384`, and give the file that ends in .pub."
    try:
        if content.startswith(b"-----"):
            read: object = load_pem_public_key(content)
        else:
            read = load_ssh_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(expected="a public key", found=f"{error} in {path}", way_out=way_out) from None
    if not isinstance(read, EllipticCurvePublicKey) or not uses_nist_ec_curve(read):
        raise InputError(
            expected="a public key on a NIST curve", found=f"{type(read).__name__} in {path}", way_out=way_out
        )
    return bytes(public_key_to_bytes(read))
