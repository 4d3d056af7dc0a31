"""Evidence bundle ``audit.zip``: results of an audit that can be passed on, with hashes and an optional signature.

The archive holds at most the files of `FILES`, a manifest ``bundle.json`` with their hashes, and the signature of the
manifest. All entries are stored without compression, in one order and with one date, so that the same results give the
same bytes, and so that an archive can unpack to no more than its own size.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from datamodules.io.files import read_bounded
from protocol.errors import require
from reports.run import Run
from reports.ssh_signature import SignatureError, signer
from reports.statement.statement import Statement

MANIFEST, SIGNATURE = "bundle.json", "bundle.json.sig"
RESULTS, SARIF, GATE, STATEMENT, PAGE = "results.json", "audit.sarif", "gate.xml", "statement.json", "statement.html"
FILES = (RESULTS, SARIF, GATE, STATEMENT, PAGE)
"""Files that a bundle may hold besides the manifest and its signature."""
MOST = 2**26
"""Bytes of the largest bundle."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""Date of all entries, the first that an archive can hold."""
_END = 22
"""Bytes at the end of an archive without a comment, which say where its list of entries is."""
_LONGEST_LIST = 2**12
"""Bytes of the list of entries."""
_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class BundleError(Exception):
    """A file that is no bundle as it was written; the message has the reason."""


class File(BaseModel):
    """Size and hash of a file of a bundle."""

    model_config = ConfigDict(strict=True, extra="forbid")
    bytes: int
    sha256: _Hash


class Manifest(BaseModel):
    """Content of ``bundle.json``.

    Attributes:
        format: version of this file.
        experiment: name of the run.
        command: command that makes the results again, without names of folders elsewhere.
        commit: commit of fedleak, with a plus if files were changed.
        versions: versions of the packages.
        seed: seed of the attacks.
        data: name and hash of the clients' data, as recorded.
        recording: hash of the recording, as in a statement; None if the run had several or did not keep it.
        results_sha256: hash of the results.json in the folder of the run, which has further tables of attacks.
        files: size and hash of each file.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    format: Literal[1] = 1
    experiment: str
    command: str
    commit: str | None
    versions: dict[str, str]
    seed: int
    data: dict[str, str]
    recording: str | None
    results_sha256: _Hash
    files: dict[Literal["results.json", "audit.sarif", "gate.xml", "statement.json", "statement.html"], File]

    def content(self) -> bytes:
        """The file."""
        return (self.model_dump_json(indent=2) + "\n").encode()


def manifest_of(run: Run, results_sha256: str, files: Mapping[str, bytes]) -> Manifest:
    """The manifest of the files of a bundle."""
    return Manifest.model_validate(
        {
            **{name: getattr(run, name) for name in ("experiment", "command", "commit", "versions", "seed", "data")},
            "recording": None if run.recording is None else run.recording.sha256,
            "results_sha256": results_sha256,
            "files": {name: _file(content) for name, content in sorted(files.items())},
        }
    )


def archive(entries: Mapping[str, bytes]) -> bytes:
    """The archive of entries by name, the same bytes for the same entries."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as file:
        for name, content in sorted(entries.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            file.writestr(entry, content)
    content = whole.getvalue()
    require(len(content) <= MOST, f"results of at most {MOST} bytes", len(content), "Bundle runs one by one.")
    return content


def verified(path: Path, allowed_signers: Path | None = None) -> str:
    """What a bundle is, in one line, after its structure, hashes and signature were checked.

    Nothing is unpacked to the disk, and nothing in it is run. It shows that the files are those that were bundled, and
    who signed them, not that the audit was right: for that, run its command on the recording with the same hash.

    Args:
        path: file of the bundle.
        allowed_signers: file of those who may sign, see ``ssh-keygen``; a bundle must then be signed by one of them.

    Raises:
        BundleError: it is no bundle as it was written, or is not signed by one of them.
        InputError: there is no such file, or it is larger than any bundle.
    """
    content = read_bounded(path, most=MOST, way_out="Give the file that attack.py export DIR --to bundle wrote.")
    entries = _entries(content)
    text = entries.pop(MANIFEST, None)
    if text is None:
        raise BundleError(f"it has no {MANIFEST}")
    signature = entries.pop(SIGNATURE, None)
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise BundleError(f"{MANIFEST} is not of format 1: {_first(error)}") from None
    _check_hashes(manifest, entries)
    check_content(manifest, entries)
    if signature is None:
        if allowed_signers is not None:
            raise BundleError("it is not signed")
        who = "not signed"
    else:
        try:
            who = signer(text, signature, allowed_signers)
        except SignatureError as error:
            raise BundleError(str(error)) from None
    count = len(entries)
    return f"{count} files of {_printable(manifest.experiment)}, {who}; made by: {_printable(manifest.command)}"


def _entries(content: bytes) -> dict[str, bytes]:
    """Entries of an archive by name, if it is what `archive` makes of them, byte for byte."""
    end = content[-_END:]
    listed = int.from_bytes(end[12:16], "little")
    if not content.startswith(b"PK\x03\x04") or not end.startswith(b"PK\x05\x06") or listed > _LONGEST_LIST:
        raise BundleError("it is no archive of a bundle")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            names = [entry.filename for entry in file.infolist()]
            foreign = [name for name in names if name not in (*FILES, MANIFEST, SIGNATURE)]
            if foreign:
                raise BundleError(f"it holds {_printable(foreign[0])!r}, which no bundle has")
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in file.infolist()):
                raise BundleError("it holds a compressed entry, which no bundle has")
            found = {name: file.read(name) for name in names}
    except (
        zipfile.BadZipFile,
        ValueError,
        EOFError,
        OSError,
        RuntimeError,
        NotImplementedError,
        OverflowError,
    ) as error:
        raise BundleError(f"its archive is damaged ({str(error)[:100]})") from None
    if archive(found) != content:
        raise BundleError("its archive has other bytes than a bundle of these files")
    return found


def _check_hashes(manifest: Manifest, entries: Mapping[str, bytes]) -> None:
    if {*manifest.files} != {*entries}:
        odd = sorted({*manifest.files} ^ {*entries})
        raise BundleError(f"{MANIFEST} and the archive differ in {', '.join(odd)}")
    for name, content in entries.items():
        if File.model_validate(_file(content)) != manifest.files[name]:  # type: ignore[index]
            raise BundleError(f"{name} has another hash than {MANIFEST} says")


def check_content(manifest: Manifest, entries: Mapping[str, bytes]) -> None:
    """Checks that the files of a bundle are of their kinds and belong together.

    Raises:
        BundleError: one is not.
    """
    if RESULTS not in entries:
        raise BundleError(f"it has no {RESULTS}")
    name = RESULTS
    try:
        run = Run.of_json(entries[RESULTS])
        if (run.experiment, run.command, run.seed) != (manifest.experiment, manifest.command, manifest.seed):
            raise BundleError(f"{RESULTS} is of another run than {MANIFEST}")
        if STATEMENT in entries:
            name = STATEMENT
            statement = Statement.model_validate_json(entries[STATEMENT])
            if statement.provenance.results_sha256 != manifest.results_sha256:
                raise BundleError(f"{STATEMENT} is of other results than {MANIFEST}")
        if SARIF in entries and json.loads(entries[name := SARIF])["version"] != "2.1.0":
            raise BundleError(f"{SARIF} is not of version 2.1.0")
    except ValidationError as error:
        raise BundleError(f"{name} is not what it should be: {_first(error)}") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BundleError(f"{name} is not what it should be ({type(error).__name__})") from None


def _file(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return _printable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


def _printable(text: str) -> str:
    """A text of a stranger for the screen, in one line."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)[:500]
