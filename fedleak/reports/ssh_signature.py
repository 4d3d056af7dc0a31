"""Signatures of bytes by ``ssh-keygen -Y``, in the namespace ``fedleak``."""

import base64
import subprocess
import tempfile
from pathlib import Path

from fedleak.core.errors import InputError, require

NAMESPACE = "fedleak"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_COLUMNS = 70
"""Characters of a line of a signature that ssh-keygen writes."""
_ORDER = 2**252 + 27742317777372353535851937790883648493
"""Order of the group of Ed25519."""
_ANOTHER_FORM = "the signature does not fit (it has another form than ssh-keygen gives it)"


class SignatureError(Exception):
    """A signature that is not of these bytes, or of nobody who may sign; the message has the reason."""


def signed(content: bytes, key: str) -> bytes:
    """Armoured signature of some bytes.

    Args:
        content: what is signed.
        key: file of the private key, or of the public key of one that an agent holds.

    Raises:
        InputError: there is no such key, or ssh-keygen is not installed.
    """
    require(Path(key).is_file(), "a private key of ssh-keygen", f"nothing at {key}", "Correct --to.sign.")
    done = _ssh_keygen(["sign", "-f", key, "-n", NAMESPACE], content)
    said = _said(done)
    require(done.returncode == 0, "a key that can sign", said, "Give a private key, or one that ssh-agent holds.")
    return done.stdout


def signer(content: bytes, signature: bytes, allowed: Path | None) -> str:
    """Who signed some bytes, in words.

    Args:
        content: what was signed.
        signature: armoured signature.
        allowed: file of the allowed signers, see ``ssh-keygen``; None to check only that the signature fits.

    Raises:
        SignatureError: the signature does not fit, is of nobody in the file, or has another form than ssh-keygen's.
        InputError: there is no such file, or ssh-keygen is not installed.
    """
    check_form(signature)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "signature"
        file.write_bytes(signature)
        if allowed is None:
            done = _ssh_keygen(["check-novalidate", "-n", NAMESPACE, "-s", str(file)], content)
            if done.returncode:
                raise SignatureError(f"the signature does not fit ({_said(done)})")
            key = done.stdout.decode(errors="replace").split()[-1]
            return f"signed by the key {key}, whose owner was not checked: give --allowed-signers"
        require(allowed.is_file(), "a file of allowed signers", f"nothing at {allowed}", "Correct --allowed-signers.")
        found = _ssh_keygen(["find-principals", "-s", str(file), "-f", str(allowed)], b"")
        for name in found.stdout.decode(errors="replace").splitlines() if found.returncode == 0 else ():
            words = ["verify", "-f", str(allowed), "-I", name, "-n", NAMESPACE, "-s", str(file)]
            if _ssh_keygen(words, content).returncode == 0:
                return f"signed by {name}"
        fits = _ssh_keygen(["check-novalidate", "-n", NAMESPACE, "-s", str(file)], content).returncode == 0
        raise SignatureError(f"signed by nobody in {allowed.name}" if fits else "the signature does not fit")


def check_form(signature: bytes) -> None:
    """Checks that a signature has the one form in which ssh-keygen writes it, so that its bytes say nothing else.

    ssh-keygen itself takes text after the end, other lengths of lines, any content of a reserved field, and, of an
    Ed25519 signature (R, S), S plus the order of the group. Of signatures by other kinds of keys, which are drawn at
    random anyway, the form alone is checked.

    Raises:
        SignatureError: it has another form.
    """
    try:
        head, *lines, tail = signature.decode("ascii").removesuffix("\n").split("\n")
        blob = base64.b64decode("".join(lines), validate=True)
        fields = _strings(blob[10:])
        if (head, tail) != (_BEGIN, _END) or armoured(blob) != signature or len(fields) != 5:
            raise SignatureError(_ANOTHER_FORM)
        _, namespace, reserved, _, own = fields
        kind, value = _strings(own)[:2]
    except ValueError:
        raise SignatureError(_ANOTHER_FORM) from None
    if (blob[:6], blob[6:10], reserved) != (b"SSHSIG", (1).to_bytes(4, "big"), b""):
        raise SignatureError(_ANOTHER_FORM)
    if namespace != NAMESPACE.encode():
        raise SignatureError("the signature does not fit (it is of another namespace)")
    if kind == b"ssh-ed25519" and int.from_bytes(value[32:], "little") >= _ORDER:
        raise SignatureError(_ANOTHER_FORM)


def armoured(blob: bytes) -> bytes:
    """A signature as text, in lines of 70 characters."""
    text = base64.b64encode(blob).decode()
    lines = [text[start : start + _COLUMNS] for start in range(0, len(text), _COLUMNS)]
    return "\n".join([_BEGIN, *lines, _END, ""]).encode()


def _strings(content: bytes) -> list[bytes]:
    """Strings of a binary file of SSH, each with its length before it.

    Raises:
        ValueError: a length is larger than what follows.
    """
    found, place = list[bytes](), 0
    while place < len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        found.append(content[place + 4 : place + 4 + size])
        place += 4 + size
    if place != len(content):
        raise ValueError("cut")
    return found


def _ssh_keygen(words: list[str], content: bytes) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(["ssh-keygen", "-Y", *words], input=content, capture_output=True, check=False)
    except FileNotFoundError:
        way_out = "Install OpenSSH 8.9 or later, or leave the signature out."
        raise InputError(expected="the program ssh-keygen", found="none on the path", way_out=way_out) from None


def _said(done: "subprocess.CompletedProcess[bytes]") -> str:
    """First line of what ssh-keygen said; it may repeat what a stranger wrote."""
    lines = (done.stderr + done.stdout).decode(errors="replace").split("\n")
    line = next((one for one in lines if one.strip()), "nothing")
    return "".join(c if c.isprintable() else " " for c in line)[:200]
