"""Evidence bundle ``audit.zip``: results of an audit that can be passed on, with hashes and an optional signature.

The archive holds at most the files of `FILES`, a manifest ``bundle.json`` with their hashes, and the signature of the
manifest. All entries are stored without compression, in one order and with one date, so that the same results give the
same bytes, and so that an archive can unpack to no more than its own size.
"""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedleak.core.errors import require
from fedleak.core.io.files import read_bounded
from fedleak.evaluation.run import Run
from fedleak.reports.junit import gate_xml
from fedleak.reports.sarif_log import sarif_log
from fedleak.reports.shared_run import shared_run
from fedleak.reports.ssh_signature import SignatureError, signer
from fedleak.reports.statement.content import Statement
from fedleak.reports.statement.page import html
from fedleak.reports.system import EVALUATED

MANIFEST = "bundle.json"
SIGNATURE = "bundle.json.sig"
RESULTS = "results.json"
SARIF = "audit.sarif"
GATE = "gate.xml"
STATEMENT = "statement.json"
PAGE = "statement.html"
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


class BundleManifest(BaseModel):
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


def manifest_of(run: Run, results_sha256: str, files: Mapping[str, bytes]) -> BundleManifest:
    """The manifest of the files of a bundle."""
    return BundleManifest.model_validate(
        {
            "experiment": run.experiment,
            "command": run.command,
            "commit": run.commit,
            "versions": run.versions,
            "seed": run.seed,
            "data": run.data,
            "recording": None if run.recording is None else run.recording.sha256,
            "results_sha256": results_sha256,
            "files": {name: _file(content) for name, content in sorted(files.items())},
        }
    )


def archive(entries: Mapping[str, bytes]) -> bytes:
    """The archive of entries by name, the same bytes for the same entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, content in sorted(entries.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            # A plain file of Unix with the mode 0644, whatever the system that writes it.
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            file.writestr(entry, content)
    archived = buffer.getvalue()
    require(len(archived) <= MOST, f"results of at most {MOST} bytes", len(archived), "Bundle runs one by one.")
    return archived


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
    # From the outside in: the archive, the manifest, the files against their hashes, their content, the signature.
    content = read_bounded(path, most=MOST, way_out="Give the file that fedleak export RUN --to bundle wrote.")
    entries = _entries(content)
    text = entries.pop(MANIFEST, None)
    if text is None:
        raise BundleError(f"it has no {MANIFEST}")
    signature = entries.pop(SIGNATURE, None)
    try:
        manifest = BundleManifest.model_validate_json(text)
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
    date = _run_of(entries).system.get(EVALUATED, "unknown")
    parts = [
        f"{len(entries)} files of {_printable(manifest.experiment)}, {who}",
        f"date {_printable(date)}",
        f"commit {_printable(manifest.commit or 'unknown')}",
        f"recording {manifest.recording or 'unknown'}",
        f"made by: {_printable(manifest.command)}",
    ]
    return "; ".join(parts)


def _entries(content: bytes) -> dict[str, bytes]:
    """Entries of an archive by name, if it is what `archive` makes of them, byte for byte."""
    # Before anything reads the list of entries: it starts with an entry, ends without a comment, and its list is short.
    end = content[-_END:]
    list_size = int.from_bytes(end[12:16], "little")
    starts_with_entry = content.startswith(b"PK\x03\x04")
    ends_with_list = end.startswith(b"PK\x05\x06")
    if not starts_with_entry or not ends_with_list or list_size > _LONGEST_LIST:
        raise BundleError("it is no archive of a bundle")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            names = [entry.filename for entry in file.infolist()]
            foreign = [name for name in names if name not in (*FILES, MANIFEST, SIGNATURE)]
            if foreign:
                raise BundleError(f"it holds {_printable(foreign[0])!r}, which no bundle has")
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in file.infolist()):
                raise BundleError("it holds a compressed entry, which no bundle has")
            entries = {name: file.read(name) for name in names}
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
    if archive(entries) != content:
        raise BundleError("its archive has other bytes than a bundle of these files")
    return entries


def _check_hashes(manifest: BundleManifest, entries: Mapping[str, bytes]) -> None:
    if {*manifest.files} != {*entries}:
        odd = sorted({*manifest.files} ^ {*entries})
        raise BundleError(f"{MANIFEST} and the archive differ in {', '.join(odd)}")
    for name, content in entries.items():
        if File.model_validate(_file(content)) != manifest.files[name]:  # type: ignore[index]
            raise BundleError(f"{name} has another hash than {MANIFEST} says")


def files_of(run: Run, statement: Statement | None) -> dict[str, bytes]:
    """Files of a bundle but the manifest and its signature, from the results and the statement of a run.

    Of a statement, its command is that of the run, and clients and records that were named with ``--persons`` are left
    out.
    """
    files = {RESULTS: run.json(), SARIF: sarif_log(run)}
    if run.gate:
        files[GATE] = gate_xml(run.gate)
    if statement is not None:
        # The command of a shared run has no paths; a statement that is passed on has the same one.
        provenance = statement.provenance.model_copy(update={"command": run.command})
        nobody: dict[str, Any] = {"worst_people": [], "most_exposed": []}
        questions = [question.model_copy(update=nobody) for question in statement.measured]
        shared_statement = statement.model_copy(update={"provenance": provenance, "measured": questions})
        files[STATEMENT] = shared_statement.content()
        files[PAGE] = html(shared_statement).encode()
    return files


def check_content(manifest: BundleManifest, entries: Mapping[str, bytes]) -> None:
    """Checks that the manifest and all files of a bundle follow from its results and its statement, byte for byte.

    Raises:
        BundleError: one does not.
    """
    run = _run_of(entries)
    statement = read_statement(entries)
    expected = manifest_of(run, manifest.results_sha256, entries)
    different = [name for name in BundleManifest.model_fields if getattr(manifest, name) != getattr(expected, name)]
    if different:
        raise BundleError(f"{RESULTS} is of another run than {MANIFEST}: they differ in {', '.join(different)}")
    if statement is not None:
        _check_statement(statement, manifest, run)
    # All files are functions of results and statement, so they are made again and compared.
    expected_files = files_of(shared_run(run), statement)
    if expected_files.keys() != entries.keys():
        odd = sorted(expected_files.keys() ^ entries.keys())
        raise BundleError(f"{RESULTS} and the archive differ in {', '.join(odd)}")
    for name, content in expected_files.items():
        if content != entries[name]:
            whose = f"of these results, which are of commit {_printable(str(manifest.commit))}"
            raise BundleError(f"{name} is not what this version of fedleak makes {whose}")


def read_statement(entries: Mapping[str, bytes]) -> Statement | None:
    """The statement among files by name; None if there is none.

    Raises:
        BundleError: it is not what it should be.
    """
    if STATEMENT not in entries:
        return None
    try:
        return Statement.model_validate_json(entries[STATEMENT])
    except ValidationError as error:
        raise BundleError(f"{STATEMENT} is not what it should be: {_first(error)}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise BundleError(f"{STATEMENT} is not what it should be ({type(error).__name__})") from None


def _run_of(entries: Mapping[str, bytes]) -> Run:
    if RESULTS not in entries:
        raise BundleError(f"it has no {RESULTS}")
    try:
        return Run.of_json(entries[RESULTS])
    except ValidationError as error:
        raise BundleError(f"{RESULTS} is not what it should be: {_first(error)}") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BundleError(f"{RESULTS} is not what it should be ({type(error).__name__})") from None


def _check_statement(statement: Statement, manifest: BundleManifest, run: Run) -> None:
    """Checks that a statement is of the run of a bundle."""
    provenance = statement.provenance
    if provenance.results_sha256 != manifest.results_sha256:
        raise BundleError(f"{STATEMENT} is of other results than {MANIFEST}")
    same = {
        "commit": provenance.commit == run.commit,
        "versions": provenance.versions == run.versions,
        "seed": provenance.seed == run.seed,
        "hardware": provenance.hardware == run.hardware,
        "recording": manifest.recording in (None, provenance.recording_sha256),
        "data": provenance.data_sha256 == run.data["sha256"],
    }
    different = [name for name, equal in same.items() if not equal]
    if different:
        raise BundleError(f"{STATEMENT} is of another run than {RESULTS}: they differ in {', '.join(different)}")


def _file(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return _printable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


def _printable(text: str) -> str:
    """A text of a stranger for the screen, in one line."""
    printable = [character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text]
    return "".join(printable)[:500]
