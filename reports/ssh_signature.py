"""Signatures of bytes by ``ssh-keygen -Y``, in the namespace ``fedleak``."""

import subprocess
import tempfile
from pathlib import Path

from protocol.errors import InputError, require

NAMESPACE = "fedleak"


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
        SignatureError: the signature does not fit, or is of nobody in the file.
        InputError: there is no such file, or ssh-keygen is not installed.
    """
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
