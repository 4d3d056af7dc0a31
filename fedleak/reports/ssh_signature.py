"""Signatures of bytes by ``ssh-keygen -Y``, in the namespace ``fedleak``."""

import base64
import subprocess
import tempfile
from pathlib import Path

from fedleak.core.errors import InputError, require

NAMESPACE = "fedleak"
_BEGIN = "-----BEGIN SSH SIGNATURE-----"
_END = "-----END SSH SIGNATURE-----"
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
    way_out = "Give a private key, or one that ssh-agent holds."
    require(done.returncode == 0, "a key that can sign", _first_line(done), way_out)
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
                raise SignatureError(f"the signature does not fit ({_first_line(done)})")
            key = done.stdout.decode(errors="replace").split()[-1]
            return f"signed by the key {key}, whose owner was not checked: give --allowed-signers"
        require(allowed.is_file(), "a file of allowed signers", f"nothing at {allowed}", "Correct --allowed-signers.")
        # Who has this key in the file, then whether the signature of the content is theirs.
        principals = _ssh_keygen(["find-principals", "-s", str(file), "-f", str(allowed)], b"")
        names = []
        if principals.returncode == 0:
            names = principals.stdout.decode(errors="replace").splitlines()
        for name in names:
            words = ["verify", "-f", str(allowed), "-I", name, "-n", NAMESPACE, "-s", str(file)]
            if _ssh_keygen(words, content).returncode == 0:
                return f"signed by {name}"
        # Nobody's: it is a stranger's signature of this content, or one of other content.
        if _ssh_keygen(["check-novalidate", "-n", NAMESPACE, "-s", str(file)], content).returncode == 0:
            raise SignatureError(f"signed by nobody in {allowed.name}")
        raise SignatureError("the signature does not fit")


def check_form(signature: bytes) -> None:
    """Checks that a signature has the one form in which ssh-keygen writes it, so that its bytes say nothing else.

    ssh-keygen itself takes text after the end, other lengths of lines, any content of a reserved field, and, of an
    Ed25519 signature (R, S), S plus the order of the group. Of signatures by other kinds of keys, which are drawn at
    random anyway, the form alone is checked.

    Raises:
        SignatureError: it has another form.
    """
    # The blob is "SSHSIG", the version 1 in four bytes, then the public key, the namespace, a reserved field that is
    # empty, the hash's name, and the signature: its kind of key and its value.
    try:
        head, *base64_lines, tail = signature.decode("ascii").removesuffix("\n").split("\n")
        blob = base64.b64decode("".join(base64_lines), validate=True)
        fields = _strings(blob[10:])
        if (head, tail) != (_BEGIN, _END) or armoured(blob) != signature or len(fields) != 5:
            raise SignatureError(_ANOTHER_FORM)
        _, namespace, reserved, _, kind_and_value = fields
        kind, value = _strings(kind_and_value)[:2]
    except ValueError:
        raise SignatureError(_ANOTHER_FORM) from None
    if blob[:6] != b"SSHSIG" or blob[6:10] != (1).to_bytes(4, "big") or reserved != b"":
        raise SignatureError(_ANOTHER_FORM)
    if namespace != NAMESPACE.encode():
        raise SignatureError("the signature does not fit (it is of another namespace)")
    # An Ed25519 value is R in 32 bytes, then S, of which S and S plus the group's order verify alike.
    if kind == b"ssh-ed25519" and int.from_bytes(value[32:], "little") >= _ORDER:
        raise SignatureError(_ANOTHER_FORM)


def armoured(blob: bytes) -> bytes:
    """A signature as text, in lines of 70 characters."""
    text = base64.b64encode(blob).decode()
    base64_lines = [text[start : start + _COLUMNS] for start in range(0, len(text), _COLUMNS)]
    return "\n".join([_BEGIN, *base64_lines, _END, ""]).encode()


def _strings(content: bytes) -> list[bytes]:
    """Strings of a binary file of SSH, each with its length before it.

    Raises:
        ValueError: a length is larger than what follows.
    """
    strings = []
    start = 0
    while start < len(content):
        size = int.from_bytes(content[start : start + 4], "big")
        strings.append(content[start + 4 : start + 4 + size])
        start += 4 + size
    # A slice takes what there is, so a length beyond the end shows here.
    if start != len(content):
        raise ValueError("cut")
    return strings


def _ssh_keygen(words: list[str], content: bytes) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(["ssh-keygen", "-Y", *words], input=content, capture_output=True, check=False)
    except FileNotFoundError:
        way_out = "Install OpenSSH 8.9 or later, or leave the signature out."
        raise InputError(expected="the program ssh-keygen", found="none on the path", way_out=way_out) from None


def _first_line(done: "subprocess.CompletedProcess[bytes]") -> str:
    """First line of the output of ssh-keygen, printable; it may repeat what a stranger wrote."""
    output = (done.stderr + done.stdout).decode(errors="replace")
    line = next((line for line in output.split("\n") if line.strip()), "nothing")
    return "".join(character if character.isprintable() else " " for character in line)[:200]
