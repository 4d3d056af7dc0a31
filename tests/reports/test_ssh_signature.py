"""Signatures of ssh-keygen are of these bytes, in this namespace, and of an allowed signer."""

import shutil
from pathlib import Path

import pytest

from fedleak.core.errors import InputError
from fedleak.reports.ssh_signature import SignatureError, signed, signer
from tests.reports.ssh_toys import allowed, key

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen")


def test_an_allowed_signer_is_named_and_others_are_refused(tmp_path: Path) -> None:
    own, other = key(tmp_path / "own"), key(tmp_path / "other")
    signature = signed(b"content", str(own))
    assert signer(b"content", signature, allowed(tmp_path, own)) == "signed by site@example.org"
    assert "SHA256:" in signer(b"content", signature, None)
    with pytest.raises(SignatureError, match="nobody"):
        signer(b"content", signature, allowed(tmp_path, other))
    with pytest.raises(SignatureError, match="nobody"):
        signer(b"content", signature, allowed(tmp_path, own, 'namespaces="git"'))


@pytest.mark.parametrize(
    "signature", [b"", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n", None]
)
def test_a_signature_of_other_bytes_is_refused(tmp_path: Path, signature: bytes | None) -> None:
    own = key(tmp_path / "own")
    given = signed(b"content", str(own)) if signature is None else signature
    for file in (None, allowed(tmp_path, own)):
        with pytest.raises(SignatureError, match="does not fit"):
            signer(b"other content", given, file)


def test_what_is_no_key_is_an_error_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "none").write_text("no key")
    for path in (tmp_path / "nothing", tmp_path / "none"):
        with pytest.raises(InputError, match="key"):
            signed(b"content", str(path))
    signature = signed(b"content", str(key(tmp_path / "own")))
    with pytest.raises(InputError, match="allowed signers"):
        signer(b"content", signature, tmp_path / "nothing")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="OpenSSH"):
        signed(b"content", str(tmp_path / "own"))
