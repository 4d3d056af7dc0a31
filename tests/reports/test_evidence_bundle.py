"""A bundle is verified byte for byte, and what is no bundle is refused without harm."""

import base64
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedleak.core.errors import InputError
from fedleak.reports.evidence_bundle import MANIFEST, RESULTS, SARIF, SIGNATURE, BundleError, archive, verified
from fedleak.reports.exporters.bundle import Bundle
from fedleak.reports.shared_run import shared_run
from fedleak.reports.ssh_signature import armoured
from tests.reports.bundle_toys import Entries, with_hashes
from tests.reports.ssh_toys import allowed, key
from tests.reports.toys import run
from tests.wording import lacking

with_keys = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen")


def bundle(folder: Path, **options: Any) -> Path:
    made = run()
    made.write(folder)
    return Path(Bundle(**options).export(made, folder))


def entries_of(path: Path) -> Entries:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def changed(**fields: Any) -> Callable[[Entries], Entries]:
    def change(entries: Entries) -> Entries:
        return {**entries, MANIFEST: json.dumps(json.loads(entries[MANIFEST]) | fields).encode()}

    return change


def test_a_bundle_as_it_was_written_is_verified(tmp_path: Path) -> None:
    said = verified(bundle(tmp_path))
    unknown = ("date unknown", "commit unknown", "recording unknown")
    assert not lacking(said, "3 files of e", "not signed", *unknown, "made by: c")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda e: {**e, RESULTS: e[RESULTS].replace(b"0.7", b"0.1")}, "results.json has another hash"),
        (lambda e: {**e, SARIF: e[SARIF] + b" "}, "audit.sarif has another hash"),
        (lambda e: {name: content for name, content in e.items() if name != SARIF}, "differ in audit.sarif"),
        (lambda e: {**e, "gate.xml": b"<a/>"}, "gate.xml has another hash"),
        (lambda e: {name: content for name, content in e.items() if name != MANIFEST}, "no bundle.json"),
        (lambda e: {**e, "scores.csv": b""}, "scores.csv"),
        (lambda e: {**e, "../../results.json": b""}, "../../results.json"),
        (lambda e: {**e, "/etc/passwd": b""}, "/etc/passwd"),
        (lambda e: {**e, "results.pkl": b"\x80\x04."}, "results.pkl"),
        (lambda e: {**e, MANIFEST: b"{}"}, "format 1"),
        (lambda e: {**e, MANIFEST: b"[" * 100_000}, "format 1"),
        (changed(format=2), "format"),
        (changed(more=1), "more"),
        (changed(seed=7), "another run"),
        (changed(command="rm -rf /"), "another run"),
        (changed(commit="0" * 40), "differ in commit"),
        (changed(versions={"torch": "9"}), "differ in versions"),
        (changed(recording="f" * 64), "differ in recording"),
        (changed(data={"name": "another", "sha256": "0"}), "differ in data"),
        (lambda e: with_hashes({**e, "gate.xml": b'<testsuites name="fedleak" tests="1"/>'}), "gate.xml is not"),
        (lambda e: with_hashes({n: c for n, c in e.items() if n != "gate.xml"}), "differ in gate.xml"),
        (lambda e: with_hashes({**e, "statement.html": b"<script>alert(1)</script>"}), "differ in statement.html"),
        (lambda e: with_hashes({**e, SARIF: e[SARIF] + b" "}), "audit.sarif is not"),
        (lambda e: with_hashes({**e, RESULTS: e[RESULTS] + b" "}), "results.json is not"),
        (lambda e: with_hashes({**e, RESULTS: e[RESULTS].replace(b"{", b'{"by": "x",', 1)}), "results.json is not"),
        (lambda e: with_hashes({**e, RESULTS: run().json()}), "results.json is not"),  # with attacks' own tables
        (lambda e: with_hashes({**e, RESULTS: b"{}"}), "results.json is not"),
        (lambda e: with_hashes({**e, RESULTS: b"\xff\xfe"}), "results.json is not"),
        (lambda e: with_hashes({**e, SARIF: b"[]"}), "audit.sarif is not"),
        (lambda e: with_hashes({**e, SARIF: b'{"version": "1"}'}), "audit.sarif is not"),
        (lambda e: with_hashes({**e, SARIF: b"[" * 100_000}), "audit.sarif is not"),
        (lambda e: with_hashes({**e, "statement.json": b"{}"}), "statement.json is not"),
        (lambda e: with_hashes({MANIFEST: e[MANIFEST], SARIF: e[SARIF]}), "no results.json"),
        (lambda e: {**e, SIGNATURE: b"x"}, "does not fit"),
    ],
)
def test_a_changed_bundle_is_refused(tmp_path: Path, change: Callable[[Entries], Entries], word: str) -> None:
    path = bundle(tmp_path)
    if word == "does not fit" and shutil.which("ssh-keygen") is None:
        pytest.skip("there is no ssh-keygen")
    path.write_bytes(archive(change(entries_of(path))))
    with pytest.raises(BundleError, match=word):
        verified(path)


def zipped(entries: list[tuple[str, bytes]], kind: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", kind) as file:
        file.comment = comment
        for name, content in entries:
            file.writestr(name, content)
    return whole.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_another_archive_of_the_same_files_is_refused(tmp_path: Path) -> None:
    path = bundle(tmp_path)
    right, entries = path.read_bytes(), entries_of(path)
    pairs = [*entries.items()]
    others = {
        "compressed": zipped(pairs, zipfile.ZIP_DEFLATED),
        "a bomb": zipped([*pairs, ("gate.xml", b"0" * 10**8)], zipfile.ZIP_DEFLATED),
        "with a date": zipped(pairs),
        "twice the same name": zipped([*pairs, (RESULTS, b"{}")]),
        "with a comment": zipped(pairs, comment=b"x"),
        "with a start": b"#!/bin/sh\n" + right,
        "with an end": right + b"\0",
        "cut": right[:-30],
        "cut in the middle": right[: len(right) // 2],
        "many entries": zipped([(f"results.json{number}", b"") for number in range(10_000)]),
        "empty": b"",
        "an empty archive": zipped([]),
        "no archive": b"PK\x03\x04" + b"\0" * 100,
        "no text": bytes(range(256)) * 10,
    }
    for name, content in others.items():
        path.write_bytes(content)
        with pytest.raises(BundleError):
            pytest.fail(f"{name}: {verified(path)}")
    path.write_bytes(right)
    assert verified(path)


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    path = bundle(tmp_path)
    right = path.read_bytes()
    for place in range(0, len(right), max(1, len(right) // 400)):
        path.write_bytes(right[:place] + bytes([right[place] ^ 1]) + right[place + 1 :])
        with pytest.raises(BundleError):
            pytest.fail(f"byte {place}: {verified(path)}")


def test_nothing_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bundle(tmp_path / "run")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    verified(path)
    assert [*empty.iterdir()] == []


@with_keys
def test_the_signature_is_of_an_allowed_signer(tmp_path: Path) -> None:
    own, other = key(tmp_path / "own"), key(tmp_path / "other")
    path = bundle(tmp_path, sign=str(own))
    assert "signed by site@example.org" in verified(path, allowed(tmp_path, own))
    assert "owner was not checked" in verified(path)
    with pytest.raises(BundleError, match="nobody"):
        verified(path, allowed(tmp_path, other))
    # Who changes a file and all hashes has no signature of the new manifest.
    forged = with_hashes({**entries_of(path), RESULTS: shared_run(run(seconds=2.0)).json()})
    path.write_bytes(archive(forged))
    with pytest.raises(BundleError, match="does not fit"):
        verified(path, allowed(tmp_path, own))
    path.write_bytes(archive({name: content for name, content in forged.items() if name != SIGNATURE}))
    with pytest.raises(BundleError, match="not signed"):
        verified(path, allowed(tmp_path, own))


def test_what_is_no_file_is_an_error_of_the_user(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.zip", tmp_path):
        with pytest.raises(InputError):
            verified(path)


@with_keys
def test_a_signature_has_one_form(tmp_path: Path) -> None:
    """ssh-keygen takes all of these but the last: anybody could add a text to a signed bundle, or change its hash."""
    own = key(tmp_path / "own")
    path = bundle(tmp_path, sign=str(own))
    entries, signers = entries_of(path), allowed(tmp_path, own)
    right = entries[SIGNATURE]
    head, *lines, tail = right.decode().strip().splitlines()
    body = "".join(lines)
    blob = base64.b64decode(body)
    order = 2**252 + 27742317777372353535851937790883648493
    another_s = blob[:-32] + (int.from_bytes(blob[-32:], "little") + order).to_bytes(32, "little")
    place = blob.index(b"fedleak") + len(b"fedleak")  # of the reserved field, which is empty
    reserved = blob[:place] + (5).to_bytes(4, "big") + b"hello" + blob[place + 4 :]
    others = {
        "in one line": "\n".join([head, body, tail, ""]),
        "in 40 columns": "\n".join([head, *(body[i : i + 40] for i in range(0, len(body), 40)), tail, ""]),
        "with a text after it": right.decode() + "anything\n",
        "with a text before it": "x\n" + right.decode(),
        "with other ends of lines": right.decode().replace("\n", "\r\n"),
        "without the last end": right.decode().rstrip("\n"),
        "with spaces": right.decode().replace("\n", " \n"),
        "with a text in the reserved field": armoured(reserved).decode(),
        "with another S": armoured(another_s).decode(),
        "cut": armoured(blob[:-1]).decode(),
        "empty": "",
    }
    for name, text in others.items():
        path.write_bytes(archive({**entries, SIGNATURE: text.encode()}))
        for allow in (signers, None):
            with pytest.raises(BundleError, match="does not fit"):
                pytest.fail(f"{name}: {verified(path, allow)}")
    path.write_bytes(archive(entries))
    assert "signed by site@example.org" in verified(path, signers)
